"""Cases that are text: files that pytest collects as tests, with what comes in and what comes out of a pass.

A file holds cases, separated by lines ``// -----``. A case begins with sentences in comments, which say what it shows,
and perhaps with settings (``// with: NAME=VALUE ...``). The text that comes in follows, then a line ``// =>``, and then
what must come out. ``NKI_UPDATE_GOLDENS=1`` writes what comes out now; read the difference before you commit it.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import goldens

BETWEEN = "\n// -----\n"
BECOMES = "\n// =>\n"
SETTINGS = "// with: "

Run = Callable[["Case"], str]
"""What makes the text that comes out."""


@dataclass(slots=True)
class Case:
    """One case of a file.

    Attributes:
        file: that it stands in; its stem names the pass.
        number: in the file, from 0.
        comment: the lines before the text.
        given: what comes in.
        wanted: what must come out.
        settings: by name, Python's constants.
    """

    file: Path
    number: int
    comment: str
    given: str
    wanted: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def sentences(self) -> str:
        """What the case shows."""
        lines = [line for line in self.comment.splitlines() if not line.startswith(SETTINGS)]
        return " ".join(line.removeprefix("//").strip() for line in lines).strip()

    def text(self, out: str) -> str:
        """The case as it stands in its file, with what comes out."""
        return f"{self.comment}\n{self.given}{BECOMES}{out}"


def cases(file: Path) -> list[Case]:
    """The cases of a file. Raises ValueError for one that is none."""
    found = []
    for number, part in enumerate(file.read_text(encoding="utf-8").strip("\n").split(BETWEEN)):
        given, becomes, wanted = (part.strip("\n") + "\n").partition(BECOMES)
        if not becomes and not goldens.UPDATE:
            raise ValueError(f"{file.name}, case {number}: no line {BECOMES.strip()}")
        lines = given.splitlines()
        end = next(at for at, line in enumerate(lines) if not line.startswith("//"))
        settings = dict(_settings(lines[:end]))
        comment, text = "\n".join(lines[:end]), "\n".join(lines[end:])
        found.append(Case(file, number, comment, text, wanted.strip("\n"), settings))
    return found


def _settings(lines: list[str]) -> Iterator[tuple[str, Any]]:
    for line in lines:
        if line.startswith(SETTINGS):
            for word in line.removeprefix(SETTINGS).split():
                name, _, value = word.partition("=")
                yield name, ast.literal_eval(value)


def compare(case: Case, out: str) -> None:
    """Hold what comes out to what must, or write it, if goldens are updated. Raises DifferentText."""
    out = out.strip("\n")
    if out == case.wanted:
        return
    if not goldens.UPDATE:
        raise DifferentText(case, out)
    parts = case.file.read_text(encoding="utf-8").strip("\n").split(BETWEEN)
    parts[case.number] = case.text(out)
    case.file.write_text(BETWEEN.join(parts) + "\n", encoding="utf-8")


class TextFile(pytest.File):
    """A file of cases."""

    run: Run

    def collect(self) -> Iterator[TextItem]:
        """One test for each case."""
        names: set[str] = set()
        for case in cases(self.path):
            name = case.sentences.split(".")[0]
            if not name or name in names:
                raise ValueError(f"{self.path.name}, case {case.number}: it begins with a sentence of its own")
            names.add(name)
            item: TextItem = TextItem.from_parent(self, name=name)
            item.case, item.run = case, self.run
            item.add_marker("golden")
            yield item


class TextItem(pytest.Item):
    """One case."""

    case: Case
    run: Run

    def runtest(self) -> None:
        """Compare; or write, if goldens are updated."""
        compare(self.case, self.run(self.case))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The difference alone."""
        return str(excinfo.value) if isinstance(excinfo.value, DifferentText) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the case is, and what it shows."""
        return self.path, 0, f"{self.path.name}: {self.name}"


class DifferentText(AssertionError):
    """Something else came out."""

    def __init__(self, case: Case, out: str) -> None:
        lines = difflib.unified_diff(case.wanted.splitlines(), out.splitlines(), "wanted", "came out", lineterm="")
        super().__init__("\n".join([case.sentences, *lines, f"{goldens.SWITCH}=1 writes it anew"]))


def collected(file: Path, parent: pytest.Collector, run: Run) -> TextFile:
    """What a folder's ``pytest_collect_file`` returns for a file of cases."""
    made: TextFile = TextFile.from_parent(parent, path=file)
    made.run = run
    return made
