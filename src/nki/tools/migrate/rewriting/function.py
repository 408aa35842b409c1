"""The body of a function, from beginning to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import libcst as cst

from nki.tools.migrate.facts import Facts
from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import walk
from nki.tools.migrate.programs import Programs
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.expressions import expression
from nki.tools.migrate.rewriting.statements import block


@dataclass
class Rewritten:
    """What became of a function.

    Attributes:
        left: statements that stay, and why.
        needs: packages of today's language that it uses, ``nl`` and ``nisa``.
    """

    function: cst.FunctionDef
    left: list[tuple[cst.CSTNode, str]]
    needs: set[str]


def rewritten(
    function: cst.FunctionDef,
    module: cst.Module,
    names: Names,
    facts: Facts,
    used: set[str],
    grid: tuple[Any, ...] | None,
) -> Rewritten:
    """Rewrite a function that was traced.

    Args:
        used: names that the file uses.
        grid: the axes that it was called with, if it is a kernel that was called from outside.
    """
    kept: frozenset[str] = frozenset()
    while True:
        taken = set(used)
        programs = Programs(names, grid or (), taken)
        added = _accumulated(function, names)
        called = grid is not None
        context = Context(module, names, facts, programs, kept, taken, added, expression, is_kernel=called)
        body = block(context, function.body)
        if context.names_left <= kept:
            break
        kept = kept | frozenset(context.names_left)
    changed = programs.looped(function.with_changes(body=body), module)
    return Rewritten(changed, context.left, context.needs)


def _accumulated(function: cst.FunctionDef, names: Names) -> frozenset[str]:
    """Names of tiles that nothing but products is added to."""
    added: set[str] = set()
    others: set[str] = set()
    for node in walk(function):
        if isinstance(node, cst.AugAssign):
            (added if _is_product(node.value, names) else others).add(_root(node.target))
        elif isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Subscript):
            others.add(_root(node.target))
    return frozenset(added - others)


def _is_product(node: cst.BaseExpression, names: Names) -> bool:
    """Whether a value is one instruction of the Tensor engine, which adds by itself."""
    function = names.canonical(node.func) if isinstance(node, cst.Call) else ""
    if not isinstance(node, cst.Call) or function not in ("nisa.nc_matmul", "nl.matmul"):
        return False
    transposed = [arg for arg in node.args if arg.keyword is not None and arg.keyword.value == "transpose_x"]
    return function == "nisa.nc_matmul" or any(
        isinstance(arg.value, cst.Name) and arg.value.value == "True" for arg in [*transposed, *node.args[2:3]]
    )


def _root(node: cst.CSTNode) -> str:
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""
