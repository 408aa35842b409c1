"""Operators of Python and names of operators, and the functions of ``nki.language`` that they are."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

import nki.beta1.language as old_language
from nki.tools.migrate.operators import NAMES
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context

OPERATORS: dict[type[cst.CSTNode], str] = {
    cst.Add: "add",
    cst.Subtract: "subtract",
    cst.Multiply: "multiply",
    cst.Divide: "divide",
    cst.Modulo: "mod",
    cst.Power: "power",
    cst.BitAnd: "bitwise_and",
    cst.BitOr: "bitwise_or",
    cst.BitXor: "bitwise_xor",
    cst.LeftShift: "left_shift",
    cst.RightShift: "right_shift",
    cst.LessThan: "less",
    cst.LessThanEqual: "less_equal",
    cst.GreaterThan: "greater",
    cst.GreaterThanEqual: "greater_equal",
    cst.Equal: "equal",
    cst.NotEqual: "not_equal",
    cst.AddAssign: "add",
    cst.SubtractAssign: "subtract",
    cst.MultiplyAssign: "multiply",
    cst.DivideAssign: "divide",
}
BINARY = {*OPERATORS.values(), "maximum", "minimum", "logical_and", "logical_or", "logical_xor"}


class Binary(NamedTuple):
    """A function of two operands.

    Attributes:
        name: in ``nki.language``.
        left, right: the operands.
        dtype: of the result, where it is given.
    """

    name: str
    left: cst.BaseExpression
    right: cst.BaseExpression
    dtype: cst.BaseExpression | None = None


def binary_of(c: Context, node: cst.BaseExpression) -> Binary | None:
    """The function of two operands that an expression is; None if it is none."""
    if isinstance(node, cst.BinaryOperation) and type(node.operator) in OPERATORS:
        return Binary(OPERATORS[type(node.operator)], node.left, node.right)
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        target = node.comparisons[0]
        if type(target.operator) in OPERATORS:
            return Binary(OPERATORS[type(target.operator)], node.left, target.comparator)
    if isinstance(node, cst.Call):
        package, _, name = c.names.canonical(node.func).partition(".")
        if package == "nl" and name in BINARY:
            given = bound(c, node, getattr(old_language, name))
            if "x" in given and "y" in given:
                return Binary(name, given["x"], given["y"], given.get("dtype"))
    return None


def operator(c: Context, node: cst.BaseExpression) -> str:
    """An operator of nki.language for one that may be NumPy's."""
    package, _, name = c.names.canonical(node).partition(".")
    if package in ("np", "nl") and name:
        return c.nl(NAMES.get(name, name))
    return c.code(node)
