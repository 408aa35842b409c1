"""What the language check looks at, one function at a time, and what it says about a node."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from nki.frontend.check.name_resolution import Names
from nki.frontend.check.scopes import Scope
from nki.frontend.check.value_kinds import Kinds
from nki.spec.rule import Severity

GUIDE = "nki/get-started/nki-language-guide.rst"
MIGRATION = "nki/migration/index.rst"


@dataclass(frozen=True, slots=True)
class CheckedFunction:
    """A function to check.

    Attributes:
        names: what its names stand for.
        kinds: what its expressions are.
        kernel: True for the kernel itself, False for what it calls.
    """

    names: Names
    kinds: Kinds
    kernel: bool

    @property
    def scope(self) -> Scope:
        """The function's own scope."""
        return self.names.source.scope

    def nodes(self) -> Iterator[tuple[ast.AST, Scope]]:
        """Every node with the scope that it runs in, those of nested functions included."""
        for scope in self.scope.within():
            for node in scope.nodes:
                yield node, scope


@dataclass(frozen=True, slots=True)
class Found:
    """A finding before it has a place in a file."""

    code: str
    severity: Severity
    node: ast.AST
    message: str
    rule: str
    source: str
    fix: str


def likely_mistake(code: str, node: ast.AST, message: str, *, rule: str, source: str = GUIDE, fix: str) -> Found:
    """Something that can be traced and is probably not meant."""
    return Found(code, "warning", node, message, rule, source, fix)


def not_possible(code: str, node: ast.AST, message: str, *, rule: str, source: str = GUIDE, fix: str) -> Found:
    """Something that the front end refuses."""
    return Found(code, "error", node, message, rule, source, fix)


def text(node: ast.AST, limit: int = 48) -> str:
    """The Python of a node, cut."""
    whole = ast.unparse(node)
    return whole if len(whole) <= limit else whole[: limit - 3] + "..."
