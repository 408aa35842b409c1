"""Snippets for the language check: imported from a file of their own, with marks where something is to be said."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from types import ModuleType

from nki.frontend.check.language_check import check_function
from nki.spec.rule import Finding

HEAD = """\
import enum
import math
import functools
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
"""

Load = Callable[[str], ModuleType]


def marked(text: str) -> tuple[str, list[str]]:
    """The text without the markers « and », and what stands between them as ``line:first-last``.

    Written without any syntax tree, so that it is independent of what finds the columns.
    """
    places = []
    lines = textwrap.dedent(text).split("\n")
    for number, line in enumerate(lines, 1 + HEAD.count("\n")):
        while "«" in line:
            start = line.index("«")
            line = line.replace("«", "", 1)
            end = line.index("»")
            line = line.replace("»", "", 1)
            places.append(f"{number}:{start}-{end}")
        lines[number - 1 - HEAD.count("\n")] = line
    return "\n".join(lines), places


def place(finding: Finding) -> str:
    frame = finding.location.frame
    assert frame is not None and frame.end_line == frame.line
    return f"{frame.line}:{frame.column}-{frame.end_column}"


def found(load: Load, text: str, frontend: str = "0.7") -> list[tuple[str, str, str]]:
    kernel = load(text).kernel
    return [(f.severity, f.code, place(f)) for f in check_function(kernel, frontend)]


def expect(load: Load, text: str, *said: str, frontend: str = "0.7") -> None:
    """`said` are ``severity code`` of the marked places, in their order in the text."""
    plain, places = marked(text)
    assert len(places) == len(said)
    wanted = [(*each.split(), where) for each, where in zip(said, places, strict=True)]
    assert sorted(found(load, plain, frontend)) == sorted(wanted)
