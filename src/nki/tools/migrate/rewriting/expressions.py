"""Expressions: calls by what is called, operators on tiles, and what is inside of everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from nki.tools.migrate.nodes import transformed
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.creation import CREATIONS, creation
from nki.tools.migrate.rewriting.instructions import instruction
from nki.tools.migrate.rewriting.language import INDEX_OUTSIDE, binary, language
from nki.tools.migrate.rewriting.methods import attribute, method
from nki.tools.migrate.rewriting.operators import binary_of
from nki.tools.migrate.rewriting.tiles import part

RANGES = ("nl.affine_range", "nl.sequential_range", "nl.static_range")
_UNARY: dict[type[cst.CSTNode], str] = {cst.Minus: "negative", cst.BitInvert: "invert"}


def expression(c: Context, node: Any) -> Any:
    """An expression in today's language."""
    text = _text(c, node)
    if text is None:
        return told(c, node, within(c, node))
    if text == c.one_line(node):
        return node
    made = cst.parse_expression(text)
    if isinstance(made, cst.BinaryOperation) and not made.lpar:
        return made.with_changes(lpar=node.lpar, rpar=node.rpar)
    return made


def told(c: Context, old: Any, new: Any) -> Any:
    """A call of a part of the kernel with what it is told of the program."""
    names = c.programs.passed(old) if isinstance(old, cst.Call) else ()
    if not names:
        return new
    args = list(new.args)
    if args and isinstance(args[-1].comma, cst.MaybeSentinel):
        args[-1] = args[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return new.with_changes(args=[*args, *(cst.Arg(cst.Name(name), cst.Name(name), equal) for name in names)])


def within(c: Context, node: Any) -> Any:
    """A node with the expressions in it in today's language."""
    return transformed(node, _Inside(c, node))


class _Inside(cst.CSTTransformer):
    def __init__(self, context: Context, root: cst.CSTNode) -> None:
        self._context = context
        self._root = root

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Param | cst.Annotation):
            return False
        return node is self._root or not isinstance(node, cst.BaseExpression)

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        if original_node is self._root or not isinstance(original_node, cst.BaseExpression):
            return updated_node
        return self._context.expr(original_node)


def _text(c: Context, node: Any) -> str | None:
    """The new text of an expression; None where only what is inside of it changes."""
    if isinstance(node, cst.Call):
        return _call(c, node)
    if isinstance(node, cst.Attribute):
        return attribute(c, node)
    kind = c.facts.kind(node)
    if kind == "tensor":
        return _tile(c, node)
    if kind in ("index", "grid") and isinstance(node, cst.Name | cst.Subscript | cst.BinaryOperation):
        raise Unmigrated(INDEX_OUTSIDE)
    return None


def _tile(c: Context, node: Any) -> str | None:
    """An expression that is a tile, and no call."""
    if isinstance(node, cst.Subscript) and c.facts.kind(node.value) == "tensor":
        return part(c, node, {})
    if isinstance(node, cst.BinaryOperation | cst.Comparison):
        operation = binary_of(c, node)
        if operation is None:
            raise Unmigrated("there is no function for this operator")
        return binary(c, node, operation)
    if isinstance(node, cst.UnaryOperation) and type(node.operator) in _UNARY:
        return f"{c.nl(_UNARY[type(node.operator)])}({c.code(node.expression)})"
    return None


def _call(c: Context, call: cst.Call) -> str | None:
    function = c.names.canonical(call.func)
    if function in _CALLS:
        return _CALLS[function](c, call)
    if function.startswith("nisa."):
        return instruction(c, call)
    if function.startswith("nl."):
        return language(c, function[3:], call)
    if function.startswith("ncc."):
        raise Unmigrated(f"{function} has no counterpart")
    return method(c, call)


def _range(c: Context, call: cst.Call) -> str:
    return f"range({', '.join(c.code(arg.value) for arg in call.args if arg.keyword is None)})"


def _par_dim(c: Context, call: cst.Call) -> str:
    return c.code(call.args[0].value)


def _no_reorder(c: Context, call: cst.Call) -> str:
    return f"{c.nl('no_reorder')}()"


def _as_it_is(c: Context, call: cst.Call) -> None:
    return None


_CALLS: dict[str, Callable[[Context, cst.Call], str | None]] = {
    **dict.fromkeys(RANGES, _range),
    **dict.fromkeys(CREATIONS, creation),
    "nl.par_dim": _par_dim,
    "nisa.get_nc_version": _as_it_is,
    "ncc.no_reorder": _no_reorder,
}
"""What is no instruction and no function of tiles."""
