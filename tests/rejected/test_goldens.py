"""Every refused kernel says what it said before, in both modes, points at the right text, and its fix works."""

from __future__ import annotations

import ast
import importlib
import linecache
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nki.core.errors import NkiError
from tests.rejected import support
from tests.rejected.support import Case, Topic

HERE = Path(__file__).resolve().parent
FILES = sorted(path.stem for path in HERE.glob("*.expected")) or []
MODULES = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in ("__init__", "support", "helper") and not p.stem.startswith("test_"))
TOPICS: list[Topic] = [importlib.import_module(f"tests.rejected.{name}").TOPIC for name in MODULES]
UPDATE = os.environ.get("NKI_UPDATE_GOLDENS") == "1"
ABSOLUTE = re.compile(r"(?<![\w./])/(?!/)\w")
INTERNAL = ("<nki.", "View(", "Buffer(", "<class", "object at 0x", "Program(", "Issued(", "NkiTensor(")

if UPDATE:
    for each in TOPICS:
        support.write_goldens(each)


def cases() -> list[Any]:
    """One parameter per kernel; those with a known defect are expected to fail."""
    return [
        pytest.param(
            topic,
            case,
            id=f"{Path(topic.file).stem}-{case.name}",
            marks=[pytest.mark.xfail(strict=True, reason=case.defect)] if case.defect else [],
        )
        for topic in TOPICS
        for case in topic.cases
    ]


@cache
def expected(file: Path) -> dict[str, str]:
    """Golden texts of a file."""
    return support.read_goldens(file)


@pytest.mark.parametrize(("topic", "case"), cases())
def test_message(topic: Topic, case: Case) -> None:
    eager, compiled = support.errors(case)
    assert (eager.code, compiled.code) == (case.code, case.code)
    assert support.rendered(eager) == expected(topic.goldens)[case.name]
    assert support.rendered(compiled) == support.rendered(eager)
    check_words(eager)
    assert underlined(support.rendered(eager)) == case.at
    if case.at:
        check_span(eager)
    if case.cure is not None:
        support.check_cure(case)


def check_words(error: NkiError) -> None:
    """It has a fix, and shows neither absolute paths nor objects of the implementation."""
    text = support.rendered(error)
    assert error.message
    assert error.fix
    assert error.location.frames
    assert not ABSOLUTE.search(text), text
    assert not [word for word in INTERNAL if word in text], text


def underlined(text: str) -> str:
    """The source text above the carets; "" if the source is not available."""
    lines = text.splitlines()
    for above, below in zip(lines, lines[1:], strict=False):
        marks = re.fullmatch(r" +\| ( *)(\^+)", below)
        if marks:
            code = above.split(" | ", 1)[1]
            return code[len(marks[1]) : len(marks[1]) + len(marks[2])]
    assert "source not available" in text
    return ""


def check_span(error: NkiError) -> None:
    """The marked columns are those of a whole expression on that line, or of a line that defines a function."""
    frame = error.location.frames[0]
    line = linecache.getline(frame.file, frame.line)
    end = frame.end_column if frame.end_line == frame.line and frame.end_column else None
    if line.lstrip().startswith("def "):
        return
    spans = set()
    for node in ast.walk(ast.parse(Path(frame.file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.expr) and node.lineno == frame.line:
            first = len(line.encode()[: node.col_offset].decode())
            last = len(line.encode()[: node.end_col_offset].decode()) if node.end_lineno == frame.line else None
            spans.add((first, last))
    assert (frame.column, end) in spans


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: Path(topic.file).stem)
def test_every_golden_belongs_to_a_kernel(topic: Topic) -> None:
    names = [case.name for case in topic.cases]
    assert len(set(names)) == len(names)
    assert list(support.read_goldens(topic.goldens)) == names


def test_the_goldens_can_fail(tmp_path: Path) -> None:
    """What is compared is the text: two kernels of one topic never share a golden."""
    for topic in TOPICS:
        texts = list(support.read_goldens(topic.goldens).values())
        assert len(set(texts)) == len(texts)
        assert all(text.startswith("error[") for text in texts)


def test_there_are_enough_of_them() -> None:
    assert sum(len(topic.cases) for topic in TOPICS) >= 60
