"""What the process of a candidate wrote, read as what it is: data of somebody who may want to be believed."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nki.compiler import CompileConfig
from nki.core.errors import NkiError
from nki.spec.rule import Finding
from nki.store.payload import finding_read
from nki.tools.grade.process.run import Heard
from nki.tools.grade.process.task import config_read
from nki.tools.grade.process.watch import KINDS
from nki.tools.grade.verdicts import did, ended, replaced, wrong_answer

_MOST = 100
_CODE = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9_-]+")
_NOT_READ = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, NkiError)


@dataclass(frozen=True, slots=True)
class Traced:
    """A program that was handed over, unverified.

    Attributes:
        data: as `nki.store.traced` reads it.
        result: the tree of results, with numbers of outputs in it.
        config: settings of the compiler.
    """

    data: bytes
    result: Any
    config: CompileConfig


@dataclass(slots=True)
class Answers:
    """What a process answered.

    Attributes:
        traced: programs by the number of the set of arguments.
        refused: findings by the number of the set for which there is no program.
        findings: warnings that its trace gave, by the number of the set.
        faults: what is wrong with what the process did.
    """

    traced: dict[int, Traced] = field(default_factory=dict)
    refused: dict[int, list[Finding]] = field(default_factory=dict)
    findings: dict[int, list[Finding]] = field(default_factory=dict)
    faults: list[Finding] = field(default_factory=list)


def answers_of(heard: Heard, sets: int) -> Answers:
    """Read all messages; the first one that no process of ours writes ends the reading."""
    answers = Answers()
    told: set[tuple[str, str]] = set()
    for message in heard.messages:
        try:
            _take(answers, message, sets, told)
        except _NOT_READ as problem:
            answers.faults.append(wrong_answer(f"{type(problem).__name__}: {problem}"))
            return answers
    if heard.ended != "done":
        answers.faults.append(ended(heard))
    elif set(range(sets)) - answers.traced.keys() - answers.refused.keys():
        answers.faults.append(wrong_answer("there is no answer for a set of arguments"))
    return answers


def _take(answers: Answers, message: Mapping[str, Any], sets: int, told: set[tuple[str, str]]) -> None:
    match message["kind"]:
        case "did" if message["what"] in KINDS:
            key = (str(message["what"]), str(message["text"])[:300])
            if key not in told and len(told) < _MOST:
                told.add(key)
                answers.faults.append(did(*key))
        case "replaced":
            answers.faults.append(replaced([str(name)[:200] for name in message["names"][:_MOST]]))
        case "traced":
            number = _number(message, sets, answers)
            data = base64.b64decode(message["program"], validate=True)
            answers.traced[number] = Traced(data, message["result"], config_read(message["config"]))
            answers.findings[number] = _findings(message)
        case "refused":
            number = _number(message, sets, answers)
            found = _findings(message)
            if not any(finding.severity == "error" for finding in found):
                raise ValueError("refused without an error")
            answers.refused[number] = found
        case kind:
            raise ValueError(f"a message of kind {kind!r}"[:200])


def _number(message: Mapping[str, Any], sets: int, answers: Answers) -> int:
    number = message["set"]
    if type(number) is not int or not 0 <= number < sets or number in answers.traced or number in answers.refused:
        raise ValueError(f"an answer for set {number!r}"[:200])
    return number


def _findings(message: Mapping[str, Any]) -> list[Finding]:
    written: Sequence[Any] = message["findings"]
    return [_finding(each) for each in written[:_MOST]]


def _finding(written: Mapping[str, Any]) -> Finding:
    texts = ("code", "severity", "message", "rule", "source", "fix")
    if not all(isinstance(written[name], str) and len(written[name]) < 1 << 16 for name in texts):
        raise TypeError("a finding is made of texts")
    if _CODE.fullmatch(written["code"]) is None or len(written["frames"]) > 1000:
        raise ValueError("a finding has a code and a location")
    return finding_read(dict(written))
