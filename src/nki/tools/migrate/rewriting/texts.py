"""Source texts: long calls on several lines, and the nodes within a node."""

from __future__ import annotations

import libcst as cst

from nki.tools.migrate.nodes import all_of

WIDTH = 110
"""Longer statements get a line for each argument."""


def wrapped(text: str, indent: str = "    ") -> str:
    """A statement with a line for each argument, if it is long."""
    if len(text) <= WIDTH or "\n" in text or not text.endswith(")"):
        return text
    start = _last_bracket(text)
    parts = [_indented(wrapped(part, indent), indent) for part in _parts(text[start + 1 : -1]) if part]
    lines = "".join(f"\n{indent}{part}," for part in parts)
    return f"{text[: start + 1]}{lines}\n)"


def _indented(text: str, indent: str) -> str:
    return text.replace("\n", f"\n{indent}")


def _last_bracket(text: str) -> int:
    """Where the bracket opens that the text ends with."""
    depth = 0
    for at in reversed(range(len(text))):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth == 0:
            return at
    return len(text)


def _parts(text: str) -> list[str]:
    """What stands between the commas of a text, but for those in brackets."""
    parts, depth, last = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[last:at].strip())
            last = at + 1
    return [*parts, text[last:].strip()]


def names_in(node: cst.CSTNode) -> set[str]:
    """The names within a node, but those of keywords."""
    keywords = {id(arg.keyword) for arg in all_of(node, cst.Arg)}
    return {name.value for name in all_of(node, cst.Name) if id(name) not in keywords}
