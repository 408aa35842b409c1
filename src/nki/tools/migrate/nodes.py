"""Walks over syntax trees that leave whitespace alone: LibCST's own ones look at it too, and make every node anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import libcst as cst

_OF_WHITESPACE = (
    *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "comma", "equal", "semicolon", "colon"),
    *("first_colon", "second_colon", "dot", "header", "footer", "leading_lines", "lines_after_decorators"),
    *("trailing_whitespace", "newline", "indent", "empty_lines"),
)


@cache  # one entry for each class of LibCST
def _parts_of(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a kind of node that hold more than whitespace and punctuation."""
    names = [each.name for each in fields(kind)]
    return tuple(name for name in names if not name.startswith("whitespace") and name not in _OF_WHITESPACE)


def parts(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes right below a node but whitespace, in the order of the source."""
    found: list[cst.CSTNode] = []
    for name in _parts_of(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += value
    return found


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and everything in it but whitespace, in the order of the source."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(parts(node))


def all_of(node: cst.CSTNode, kind: type[Any]) -> list[Any]:
    """The nodes of a kind within a node, itself among them."""
    return [each for each in walk(node) if isinstance(each, kind)]


def comments_in(node: cst.CSTNode) -> list[cst.Comment]:
    """The comments within a node, in the order of the source."""
    found = [node] if isinstance(node, cst.Comment) else []
    for child in node.children:
        found += comments_in(child)
    return found


def transformed(node: Any, transformer: cst.CSTTransformer) -> Any:
    """A node as a transformer changes it and everything in it but whitespace.

    Nodes in which nothing changes are those of the old tree.
    """
    new = node
    if transformer.on_visit(node):
        changes: dict[str, Any] = {}
        kind: type[cst.CSTNode] = type(node)
        for name in _parts_of(kind):
            value = getattr(node, name)
            if isinstance(value, cst.CSTNode):
                made = transformed(value, transformer)
            elif isinstance(value, tuple | list) and value:
                made = _sequence(value, transformer)
            else:
                continue
            if made is not value:
                changes[name] = None if isinstance(made, cst.RemovalSentinel) else made
        new = node.with_changes(**changes) if changes else node
    return transformer.on_leave(node, new)


def _sequence(nodes: Any, transformer: cst.CSTTransformer) -> Any:
    """Nodes one after another: some may be gone, and some several ones."""
    found: list[Any] = []
    for each in nodes:
        made = transformed(each, transformer)
        if isinstance(made, cst.FlattenSentinel):
            found += made.nodes
        elif not isinstance(made, cst.RemovalSentinel) and not (made is not each and _is_empty(made)):
            found.append(made)
    same = len(found) == len(nodes) and all(one is other for one, other in zip(found, nodes, strict=True))
    return nodes if same else found


def _is_empty(node: cst.CSTNode) -> bool:
    """Whether it is a line without a statement."""
    return isinstance(node, cst.SimpleStatementLine) and not node.body
