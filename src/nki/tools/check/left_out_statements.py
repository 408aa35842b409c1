"""The code of a function without some of its statements: names stay what they are, and values are missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from types import CodeType
from typing import Any

NAME = "__nki_missing__"
"""The global name that stands for a value which is missing."""

Place = tuple[int, int]
"""Line and column of a statement."""


def statement_at(tree: ast.Module, line: int) -> ast.stmt | None:
    """The innermost statement on a line."""
    found: ast.stmt | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if found is None or (node.lineno, node.col_offset) >= (found.lineno, found.col_offset):
            found = node
    return found


def code_without(tree: ast.Module, places: Set[Place], old: CodeType) -> CodeType | None:
    """The code of a function of a module that leaves out statements; None if it cannot stand for the old one."""
    module = ast.fix_missing_locations(_Leaver(places).visit(tree))
    new = next((c for c in _codes(compile(module, old.co_filename, "exec")) if _same_function(c, old)), None)
    return new if new is not None and new.co_freevars == old.co_freevars else None


def _same_function(new: CodeType, old: CodeType) -> bool:
    return (new.co_name, new.co_firstlineno) == (old.co_name, old.co_firstlineno)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


class _Leaver(ast.NodeTransformer):
    def __init__(self, places: Set[Place]) -> None:
        self._places = places

    def visit(self, node: ast.AST) -> Any:
        left_out = isinstance(node, ast.stmt) and (node.lineno, node.col_offset) in self._places
        node = self.generic_visit(node)
        return _without(node) if left_out and isinstance(node, ast.stmt) else node


def _without(node: ast.stmt) -> ast.stmt:
    """Keep the names of a statement and compute nothing: it stays where it never runs."""
    true, false = ast.copy_location(ast.Constant(True), node), ast.copy_location(ast.Constant(False), node)
    match node:
        case ast.If():
            node.test = ast.copy_location(ast.BoolOp(ast.Or(), [true, node.test]), node.test)
            return node
        case ast.While():
            node.test = ast.copy_location(ast.BoolOp(ast.And(), [false, node.test]), node.test)
            return node
        case ast.For():
            empty = ast.copy_location(ast.Tuple([], ast.Load()), node.iter)
            node.iter = ast.copy_location(ast.IfExp(true, empty, node.iter), node.iter)
            return node
        case ast.With():
            head = ast.copy_location(ast.With(node.items, [ast.copy_location(ast.Pass(), node)]), node)
            return ast.copy_location(ast.If(false, [head], node.body), node)
        case ast.Return():
            return ast.copy_location(ast.If(false, [node], [ast.copy_location(ast.Return(_missing(node)), node)]), node)
    return ast.copy_location(ast.If(false, [node], _assigned(node)), node)


def _assigned(node: ast.stmt) -> list[ast.stmt]:
    """What gives the names that a statement would have set a value that is missing."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = [name.id for target in targets for name in ast.walk(target) if _is_stored(name)]  # type: ignore[attr-defined]
    return [
        ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), node)], _missing(node)), node)
        for name in names
    ]


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _missing(node: ast.stmt) -> ast.Name:
    return ast.copy_location(ast.Name(NAME, ast.Load()), node)
