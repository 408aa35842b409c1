"""Every refused kernel says what it said before, in both modes, points at the right text, and its fix works."""

from __future__ import annotations

import ast
import importlib
import linecache
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nki.core.errors import NkiError
from tests.rejected import support
from tests.rejected.support import Case, Topic

HERE = Path(__file__).resolve().parent
MODULES = sorted(
    path.stem
    for path in HERE.glob("*.py")
    if not path.stem.startswith("test_") and "TOPIC = Topic(" in path.read_text(encoding="utf-8")
)
TOPICS: list[Topic] = [importlib.import_module(f"tests.rejected.{name}").TOPIC for name in MODULES]
ABSOLUTE = re.compile(r"(?<![\w./])/(?!/)\w")
INTERNAL = (
    "<nki.",
    "View(",
    "Buffer(",
    "<class",
    "0xADDRESS",
    "Program(",
    "Issued(",
    "NkiTensor(",
    "NkiInstruction(",
    "VirtualRegister(",
)


def cases(*aspects: str) -> list[Any]:
    """One parameter per kernel; where one of these aspects is defective the test is expected to fail."""
    return [
        pytest.param(
            topic,
            case,
            id=f"{Path(topic.file).stem}-{case.name}",
            marks=[
                pytest.mark.xfail(strict=True, reason=case.defects[aspect])
                for aspect in aspects
                if aspect in case.defects
            ],
        )
        for topic in TOPICS
        for case in topic.cases
    ]


@pytest.mark.golden
@pytest.mark.parametrize(("topic", "case"), cases("modes", "words", "caret"))
def test_message(topic: Topic, case: Case) -> None:
    """What is asked of every message comes first, so that no golden is written that does not have it."""
    eager, compiled = support.errors(case)
    assert (eager.code, compiled.code) == (case.code, case.code)
    text = support.rendered(eager)
    assert support.rendered(compiled) == text, "both modes say the same"
    for error in (eager, compiled):
        check_words(error)
    assert underlined(text) == case.at
    if case.at:
        assert not ABSOLUTE.search(text)
        check_span(eager)
    topic.goldens.check(case.name, text)


@pytest.mark.parametrize(("topic", "case"), cases("cure"))
def test_the_fix_works(topic: Topic, case: Case) -> None:
    if case.cure is not None:
        support.check_cure(case)


def check_words(error: NkiError) -> None:
    """It has a fix, and shows nothing internal."""
    text = support.rendered(error)
    assert error.message
    assert error.fix
    assert not ABSOLUTE.search(f"{error.message}\n{error.rule}\n{error.fix}"), text
    assert not [word for word in INTERNAL if word in text], text


def underlined(text: str) -> str:
    """The source text above the carets; "" if the source is not available."""
    lines = text.splitlines()
    for above, below in pairwise(lines):
        marks = re.fullmatch(r" +\| ( *)(\^+)", below)
        if marks:
            code = above.split(" | ", 1)[1]
            return code[len(marks[1]) : len(marks[1]) + len(marks[2])]
    assert "source not available" in text
    return ""


@cache
def syntax(file: str) -> list[ast.AST]:
    """All nodes of a file."""
    return list(ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))))


def check_span(error: NkiError) -> None:
    """The marked columns are those of a whole expression, or of a statement that computes, on that line."""
    frame = error.location.frames[0]
    line = linecache.getline(frame.file, frame.line)
    end = frame.end_column if frame.end_line == frame.line and frame.end_column else None
    spans = set()
    for node in syntax(frame.file):
        if (
            isinstance(node, ast.expr | ast.AugAssign | ast.Break | ast.FunctionDef | ast.If)
            and node.lineno == frame.line
        ):
            first = len(line.encode()[: node.col_offset].decode())
            last = len(line.encode()[: node.end_col_offset].decode()) if node.end_lineno == frame.line else None
            last = len(line.rstrip()) if isinstance(node, ast.FunctionDef) else last
            spans.add((first, last))
    assert (frame.column, end) in spans


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: Path(topic.file).stem)
def test_no_two_kernels_have_one_name(topic: Topic) -> None:
    names = [case.name for case in topic.cases]
    assert len(set(names)) == len(names)


def test_no_two_kernels_share_a_golden() -> None:
    for topic in TOPICS:
        texts = list(topic.goldens.texts.values())
        assert len(set(texts)) == len(texts)
        assert all(text.startswith("error[") for text in texts)


def test_there_are_enough_of_them() -> None:
    assert sum(len(topic.cases) for topic in TOPICS) >= 60
