"""The source files of a checkout, parsed once."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|fmt:|pragma)")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A file of the package.

    Attributes:
        path: from the folder above the package, as "nki/core/source.py".
        text: what is in it.
    """

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def module(self) -> str:
        """Dotted name; of a package's ``__init__.py`` that of the package."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def comments(self) -> dict[int, str]:
        """Comments by line, but for those that are for tools."""
        found = {token.start[0]: token.string for token in self.tokens if token.type == tokenize.COMMENT}
        return {line: text for line, text in found.items() if not _FOR_TOOLS.match(text)}

    @cached_property
    def docstrings(self) -> list[ast.Constant]:
        """Strings that stand alone: of modules, classes and functions, and below what they are about."""
        return [
            node.value
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]

    def functions(self) -> Iterator[Function]:
        """All of them, methods and inner ones included."""
        return (node for node in self.nodes if isinstance(node, Function))

    def classes(self) -> Iterator[ast.ClassDef]:
        """All of them."""
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    def at(self, node: ast.AST) -> str:
        """Where a node is, for people."""
        return f"{self.path}:{node.lineno}"  # type: ignore[attr-defined]


def sources(root: Path) -> list[Source]:
    """All files of the package of a checkout, by path."""
    base = root / "src"
    paths = sorted((base / "nki").rglob("*.py"))
    if not paths:
        raise SystemExit(f"there is no package in {base / 'nki'}")
    return [Source(str(path.relative_to(base)), path.read_text(encoding="utf-8")) for path in paths]


def name_of(node: ast.AST) -> str:
    """The last part of a name, "" of anything else: ``c`` of ``a.b.c``."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
