"""Sums of products of source expressions, so that bounds of slices are written without what cancels."""

from __future__ import annotations

import ast
from dataclasses import dataclass

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Linear:
    """``sum(factor * product of texts)``; the empty product counts the number 1."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(text: str) -> Linear:
        """The polynomial of an expression; what is no sum or product of integers and names is one factor."""
        return _of(ast.parse(text, mode="eval").body)

    @staticmethod
    def number(value: int) -> Linear:
        return Linear((((), value),) if value else ())

    def __add__(self, other: Linear) -> Linear:
        found = dict(self.terms)
        for key, factor in other.terms:
            found[key] = found.get(key, 0) + factor
        return Linear(tuple((key, factor) for key, factor in found.items() if factor))

    def __neg__(self) -> Linear:
        return self * Linear.number(-1)

    def __sub__(self, other: Linear) -> Linear:
        return self + -other

    def __mul__(self, other: Linear) -> Linear:
        found: dict[Monomial, int] = {}
        for one, a in self.terms:
            for two, b in other.terms:
                key = tuple(sorted((*one, *two)))
                known = next((each for each in found if tuple(sorted(each)) == key), (*one, *two))
                found[known] = found.get(known, 0) + a * b
        return Linear(tuple((key, factor) for key, factor in found.items() if factor))

    @property
    def constant(self) -> int | None:
        """The value of an expression that is a number."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == () else None

    def __str__(self) -> str:
        terms = sorted(self.terms, key=lambda term: (term[1] < 0, term[0] == ()))
        text = ""
        for key, factor in terms:
            parts = list(key)
            if abs(factor) != 1 or not parts:
                parts = [*parts, str(abs(factor))]
            product = " * ".join(parts)
            sign = "-" if factor < 0 else "+"
            text += f" {sign} {product}" if text else f"-{product}" if factor < 0 else product
        return text or "0"


def _of(node: ast.expr) -> Linear:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return Linear.number(value)
        case ast.BinOp(left, ast.Add(), right):
            return _of(left) + _of(right)
        case ast.BinOp(left, ast.Sub(), right):
            return _of(left) - _of(right)
        case ast.BinOp(left, ast.Mult(), right):
            return _of(left) * _of(right)
        case ast.UnaryOp(ast.USub(), operand):
            return -_of(operand)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _of(operand)
    text = ast.unparse(node)
    simple = isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    return Linear((((text if simple else f"({text})",), 1),))
