"""What a process writes is data of somebody who may want to be believed."""

from __future__ import annotations

import json

import pytest

from nki.tools.grade.answers import answers_of
from nki.tools.grade.process.run import heard_of

READY = {"limits": True, "network_namespace": False, "landlock": 0, "system_calls": False, "kind": "ready"}
REFUSED = {"kind": "refused", "set": 0, "findings": [{"code": "a.b", "severity": "error", "message": "no"}]}
for _name in ("rule", "source", "fix"):
    REFUSED["findings"][0][_name] = ""  # type: ignore[index]
REFUSED["findings"][0] |= {"frames": [], "facts": {}}  # type: ignore[index]
DONE = {"kind": "done"}


def faults(*lines: object, ended: str = "", sets: int = 1) -> list[str]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in (READY, *lines)]
    heard = heard_of("".join(f"{text}\n" for text in texts).encode(), ended)
    return [fault.code for fault in answers_of(heard, sets).faults]


def test_an_answer() -> None:
    assert faults(REFUSED, DONE) == []


@pytest.mark.parametrize(
    "lines",
    [
        (DONE,),
        (REFUSED, REFUSED, DONE),
        ({**REFUSED, "set": 1}, DONE),
        ({**REFUSED, "set": True}, DONE),
        ({**REFUSED, "findings": []}, DONE),
        ({**REFUSED, "findings": [{**REFUSED["findings"][0], "facts": float("nan")}]}, DONE),  # type: ignore[index, dict-item]
        ({**REFUSED, "findings": [{**REFUSED["findings"][0], "code": "\x1b[31m"}]}, DONE),  # type: ignore[index, dict-item]
        ({"kind": "traced", "set": 0, "program": "AAAA", "result": None, "config": {}, "findings": []}, DONE),
        ({"kind": "did", "what": "nothing", "text": ""}, DONE),
        ({"what": "reads"}, DONE),
        ("[" * 100_000,),
        ("7",),
    ],
)
def test_what_the_tracer_does_not_write(lines: tuple[object, ...]) -> None:
    assert faults(*lines) == ["grade.answer"]


@pytest.mark.parametrize(
    ("ended", "code"), [("time", "time"), ("files", "size"), ("answer", "size"), ("code 7", "ended")]
)
def test_why_a_process_ended(ended: str, code: str) -> None:
    assert faults(REFUSED, ended=ended) == [f"grade.{code}"]


def test_what_was_told_stays_told() -> None:
    """Also if the process ends at once afterwards."""
    assert faults({"kind": "did", "what": "reads", "text": "/etc/passwd"}, ended="code 0") == [
        "grade.reads",
        "grade.ended",
    ]
