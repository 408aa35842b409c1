"""Shares of a search for batch systems: jobs that know nothing of each other, and files that are put together."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from nki.core.errors import LaunchError, UsageError
from nki.core.regular import read_regular
from nki.core.shown import shown
from nki.core.source import UNKNOWN
from nki.store.files import write_whole
from nki.tune.ask import Ask, Done
from nki.tune.job import Answer, Question, TuningJob
from nki.tune.search import Check

FORMAT, VERSION = "nki-tune-shard", 1
_LIMIT_BYTES = 1 << 26
_TEXT = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several equal shares, by its number from 1."""

    number: int
    count: int

    def has(self, at: int) -> bool:
        """Whether the candidate at this place belongs to it."""
        return at % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def read_shard(text: str) -> Shard:
    """A shard as the command line has it, such as ``2/8``.

    Raises:
        UsageError: something else (``tune.shard``).
    """
    found = _TEXT.fullmatch(text)
    if found is not None and 1 <= int(found[1]) <= int(found[2]):
        return Shard(int(found[1]), int(found[2]))
    raise UsageError(
        "tune.shard",
        f"--shard {shown(text)}",
        rule="a shard is NUMBER/COUNT, and its number is one from 1 to the count",
        fix="write --shard 1/4 for the first of four",
        location=UNKNOWN,
    )


@dataclass(frozen=True, slots=True)
class Known:
    """Answers and verdicts about candidates, by their labels.

    Attributes:
        answers: by question and label.
        verdicts: in what a candidate differs from the default.
    """

    answers: dict[tuple[Question, str], Answer] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)

    def update(self, other: Known) -> None:
        """Take over what somebody else knows."""
        self.answers.update(other.answers)
        self.verdicts.update(other.verdicts)

    def asking(self, job: TuningJob, ask: Ask, done: Done) -> Ask:
        """Answers from here, and those of `ask`, which are kept."""

        def answered(question: Question, numbers: Sequence[int]) -> list[Answer]:
            labels = [job.configs[number].label for number in numbers]
            new = [n for n, label in zip(numbers, labels, strict=True) if (question, label) not in self.answers]
            for number in numbers:
                if number not in new:
                    done(question, number)
            for number, answer in zip(new, ask(question, new) if new else [], strict=True):
                self.answers[question, job.configs[number].label] = answer
            return [self.answers[question, label] for label in labels]

        return answered

    def checking(self, job: TuningJob, check: Check) -> Check:
        """Verdicts from here, and those of `check`, which are kept."""

        def checked(number: int) -> str:
            label = job.configs[number].label
            if label not in self.verdicts:
                self.verdicts[label] = check(number)
            return self.verdicts[label]

        return checked


@dataclass(frozen=True, slots=True)
class ShardFile:
    """What one shard found.

    Attributes:
        kernel, target: names.
        key: shapes and dtypes of the call, as text.
        digest: of everything that the result of the whole search depends on.
        shard: which one.
        known: what it asked and checked.
    """

    kernel: str
    target: str
    key: str
    digest: str
    shard: Shard
    known: Known

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        answers = [
            {"question": question, "config": label, "ns": each.ns, "reason": each.reason, "assumed": each.assumed}
            for (question, label), each in self.known.answers.items()
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            "kernel": self.kernel,
            "target": self.target,
            "key": self.key,
            "digest": self.digest,
            "shard": self.shard.number,
            "shards": self.shard.count,
            "answers": answers,
            "verdicts": self.known.verdicts,
        }

    def write(self, folder: Path) -> Path:
        """Write it into a folder, which is made if it is not there; the file appears complete or not at all.

        Raises:
            LaunchError: it cannot be written (``tune.shards``).
        """
        path = folder / f"{self.kernel}-{self.shard.number}-of-{self.shard.count}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, (json.dumps(self.to_json(), indent=1) + "\n").encode())
        except OSError as problem:
            _refuse(f"{path} cannot be written: {problem}", "name a folder that all shards may write to")
        return path


def read_shards(folder: Path, expected: ShardFile) -> list[ShardFile]:
    """All shards of a search, from the files of a folder.

    Args:
        expected: what all of them are about; its shard and what it knows do not count.

    Raises:
        LaunchError: a file is something else, or of another search; a shard is not there, or there twice
            (``tune.shards``).
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        _refuse(f"{folder} has no shards", "name the folder of `nki tune --shard 1/4 --out FOLDER`")
    files = [_read(path) for path in paths]
    for path, each in zip(paths, files, strict=True):
        _check_same(path, each, expected)
    counts = {each.shard.count for each in files}
    if len(counts) > 1:
        told = " and ".join(
            str(each.shard) for each in (files[0], next(f for f in files if f.shard.count != files[0].shard.count))
        )
        _refuse(f"{folder} has shards {told}", "leave the shards of one search in the folder")
    there = [each.shard.number for each in files]
    twice = next((number for number in there if there.count(number) > 1), None)
    if twice is not None:
        _refuse(f"{folder} has shard {twice} twice", "remove one of the files")
    gone = [number for number in range(1, counts.pop() + 1) if number not in there]
    if gone:
        told = ", ".join(map(str, gone[:20])) + (", ..." if len(gone) > 20 else "")
        _refuse(
            f"{folder} lacks shard{'s' if len(gone) > 1 else ''} {told} of {files[0].shard.count}",
            "run what is missing",
        )
    return files


def _check_same(path: Path, found: ShardFile, expected: ShardFile) -> None:
    for name in ("kernel", "target", "key"):
        mine, theirs = getattr(expected, name), getattr(found, name)
        if mine != theirs:
            what = "the call" if name == "key" else name
            _refuse(f"{path} is of {what} {theirs!r}, and this is of {mine!r}", "give each search a folder of its own")
    if found.digest != expected.digest:
        what = "the kernel, a configuration, a setting of the search or the installation has changed"
        _refuse(f"{path} was made from something else: {what}", "run its shard again")


def _read(path: Path) -> ShardFile:
    try:
        data = read_regular(path, _LIMIT_BYTES + 1)
        if len(data) > _LIMIT_BYTES:
            raise ValueError(f"it has more than {_LIMIT_BYTES} bytes")
        document = json.loads(data)
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it is of another format than {FORMAT} {VERSION}")
        return _file_of(document)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        told = f"it lacks {problem}" if isinstance(problem, KeyError) else str(problem)
        _refuse(f"{path} cannot be used: {told}", "run its shard again, or take the file away")


def _file_of(document: dict[str, Any]) -> ShardFile:
    """The record of a file; raises ValueError, KeyError or TypeError for another one."""
    known = Known()
    for each in document["answers"]:
        ns, question = each["ns"], each["question"]
        if question not in ("bound", "time") or not (
            ns is None or (type(ns) in (int, float) and 0 <= ns < float("inf"))
        ):
            raise ValueError(f"it has the answer {shown(each)}")
        known.answers[question, _text(each["config"])] = Answer(ns, _text(each["reason"]), bool(each["assumed"]))
    for label, verdict in document["verdicts"].items():
        known.verdicts[label] = _text(verdict)
    shard = read_shard(f"{document['shard']}/{document['shards']}")
    texts = [_text(document[name]) for name in ("kernel", "target", "key", "digest")]
    return ShardFile(texts[0], texts[1], texts[2], texts[3], shard, known)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no text")
    return value


def _refuse(message: str, fix: str) -> NoReturn:
    rule = "the shards of a search are all there, and of the same kernel, configurations, call and installation"
    raise LaunchError("tune.shards", message, rule=rule, fix=fix)
