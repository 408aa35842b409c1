"""The source of functions that exist, found by their code and read once per file."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from nki.core.source import Frame
from nki.core.syntax import parsed
from nki.frontend.check.scopes import Scope, read_scopes

Placed = ast.stmt | ast.expr | ast.arg | ast.excepthandler | ast.keyword


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function's scope in its file."""

    file: str
    name: str
    scope: Scope

    def frame(self, node: ast.AST) -> Frame:
        """Where a node is; columns in characters. A whole function is its name."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return self._frame_of_name(node)
        if isinstance(node, ast.With | ast.Try):
            word = type(node).__name__.lower()
            return Frame(self.file, self.name, node.lineno, node.col_offset, node.lineno, node.col_offset + len(word))
        assert isinstance(node, Placed), "a node with a position"
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return Frame(
            self.file,
            self.name,
            node.lineno,
            self._characters(node.lineno, node.col_offset),
            end_line,
            self._characters(end_line, end_column),
        )

    def _frame_of_name(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Frame:
        start = linecache.getline(self.file, node.lineno).find(node.name, node.col_offset)
        return Frame(self.file, self.name, node.lineno, start, node.lineno, start + len(node.name))

    def _characters(self, line: int, column: int) -> int:
        """Syntax trees count UTF-8 bytes, people count characters."""
        return len(linecache.getline(self.file, line).encode()[:column].decode(errors="ignore"))


def source_of(code: CodeType) -> FunctionSource | None:
    """The source of a function; None if there is none, or if the file is no longer what was run."""
    lines = linecache.getlines(code.co_filename)
    scope = _functions("".join(lines)).get((code.co_name, code.co_firstlineno)) if lines else None
    if scope is None or [parameter.arg for parameter in scope.parameters()] != _parameters(code):
        return None
    return FunctionSource(code.co_filename, code.co_qualname, scope)


@lru_cache(maxsize=128)  # kernels of one file share its tree
def _functions(text: str) -> dict[tuple[str, int], Scope | None]:
    """Scopes of functions by name and first line, as code objects give them; None where two are alike."""
    try:
        module = read_scopes(parsed(text))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[tuple[str, int], Scope | None] = {}
    for scope in module.within():
        if not isinstance(scope.owner, ast.Module | ast.ClassDef):
            key = _key(scope.owner)
            found[key] = None if key in found else scope
    return found


def _key(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> tuple[str, int]:
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    return node.name, min(node.lineno, *(decorator.lineno for decorator in node.decorator_list), node.lineno)


def _parameters(code: CodeType) -> list[str]:
    stars = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars])
