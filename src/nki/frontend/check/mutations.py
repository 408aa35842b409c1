"""Changes to what a name stands for: assignment to it, and methods, items and attributes that change the object."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nki.frontend.check.scopes import Scope

How = Literal["name", "item", "attribute", "method"]

METHODS = frozenset(
    {
        *("append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"),
        *("remove", "reverse", "setdefault", "sort", "update"),
    }
)
"""Methods that change lists, dicts, sets and queues, without ``add``, which other classes mean otherwise."""


@dataclass(frozen=True, slots=True)
class Write:
    """One change.

    Attributes:
        name: of the variable.
        how: what changes: the name itself, an item or an attribute of the object, or the object, by a method.
        node: where.
        scope: the scope that it runs in.
    """

    name: str
    how: How
    node: ast.AST
    scope: Scope

    @property
    def home(self) -> Scope | None:
        """The scope that the name belongs to."""
        return self.scope.home(self.name)


def writes(scope: Scope) -> Iterator[Write]:
    """The changes in one scope; not those in nested ones."""
    for node in scope.nodes:
        match node:
            case ast.Name(name, ast.Store() | ast.Del()):
                yield Write(name, "name", node, scope)
            case ast.Subscript(ast.Name(name), _, ast.Store() | ast.Del()):
                yield Write(name, "item", node, scope)
            case ast.Attribute(ast.Name(name), _, ast.Store() | ast.Del()):
                yield Write(name, "attribute", node, scope)
            case ast.Call(ast.Attribute(ast.Name(name), method)) if method in METHODS:
                yield Write(name, "method", node, scope)


def writes_within(scope: Scope) -> Iterator[Write]:
    """The changes in a scope and in those nested in it."""
    for inner in scope.within():
        yield from writes(inner)
