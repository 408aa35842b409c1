"""Docstrings that begin with a fragment: with a word that points at something that is said elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from scripts.figures.tree import Source

FRAGMENTS = (
    *("Of", "The same", "The other", "So", "Those", "These", "And", "Or", "But", "Nor", "Also", "Else", "Then", "Too"),
    *("Likewise", "Such", "Ditto", "As above", "As before", "It", "Its", "They", "Their", "Them", "Again"),
    *("Same", "Itself"),
)
"""A preposition or conjunction without what it continues, or a pronoun without what it stands for.

"What ..." and "Whether ..." are not among them: "What a kernel reads." names its subject itself.
"""
_BEGINS = re.compile(rf"(?:{'|'.join(FRAGMENTS)})\b(?!-)")
_ANY_TEXT = re.compile(rf"[\"'][\s\\]*{_BEGINS.pattern}")
"""A text of a file that begins so, docstring or not: most files have none, and need not be parsed."""


def fragments(sources: Sequence[Source]) -> dict[str, list[str]]:
    """Place and first line of each, of modules, classes and functions, and of texts below values."""
    found: dict[str, list[str]] = {"docstrings": [], "values": []}
    for source in sources:
        if not _ANY_TEXT.search(source.text):
            continue
        documented = {id(node) for node in _docstrings(source)}
        for text in source.docstrings:
            said = str(text.value).strip()
            if _BEGINS.match(said):
                kind = "docstrings" if id(text) in documented else "values"
                found[kind].append(f"{source.at(text)} {said.splitlines()[0]}")
    return found


def _docstrings(source: Source) -> Iterator[ast.expr]:
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr):
                yield first.value
