"""Lines, files and functions."""

from __future__ import annotations

import ast
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from scripts.figures.tree import Source
from scripts.size_report import MAX_FUNCTION_LINES, code_lines

_NO_CODE = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)
MOST_FILES = 30
MANY_FILES = ("nki/isa", "nki/graph/emit")
"""Folders with a file for each instruction and each emitter, which may have more."""


def lines_of_code(source: Source) -> int:
    """Lines with code on them: no blank lines, comments and docstrings."""
    found: set[int] = set()
    for token in source.tokens:
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for docstring in source.docstrings:
        found.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(found)


def folders(sources: Sequence[Source]) -> dict[str, dict[str, int]]:
    """Of each folder, without those in it: files, lines, lines of code, comments."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"files": 0, "lines": 0, "code": 0, "comments": 0})
    for source in sources:
        row = found[source.folder]
        row["files"] += 1
        row["lines"] += source.text.count("\n")
        row["code"] += lines_of_code(source)
        row["comments"] += len(source.comments)
    return dict(sorted(found.items()))


def crowded(rows: dict[str, dict[str, int]]) -> dict[str, int]:
    """Folders with too many files."""
    return {name: row["files"] for name, row in rows.items() if row["files"] > MOST_FILES and name not in MANY_FILES}


def functions(sources: Sequence[Source]) -> dict[str, Any]:
    """How many there are, how many are at most six lines long, and those that are too long or import."""
    found = [(source, node) for source in sources for node in source.functions()]
    lengths = [code_lines(node) for _, node in found]
    return {
        "all": len(found),
        "at most 6 lines": sum(length <= 6 for length in lengths),
        "over 30 lines": [
            f"{source.at(node)} {node.name} {length}"
            for (source, node), length in zip(found, lengths, strict=True)
            if length > MAX_FUNCTION_LINES
        ],
        "with local imports": [
            f"{source.at(node)} {node.name}" for source, node in found if any(map(_is_import, _own(node)))
        ],
    }


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, but not in functions in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own(child)
