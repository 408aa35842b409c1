"""Integers of the array namespace on symbols: exact 32-bit arithmetic, and positions as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.dtypes import DType, int32
from nki.native.trace.expression import COLUMN, I32, I64, MASK, ROW, Node, NotTraceable, storage_type
from nki.native.trace.values import Values

_PREDICATES = {
    "equal": "eq",
    "not_equal": "ne",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "maximum": "gt",
    "minimum": "lt",
}
_WRAPPING = {"add": "iadd", "subtract": "isubtract", "multiply": "imultiply"}


class Integers(Values):
    """What GpSimd computes exactly."""

    def integer(self, name: str, a: Any, b: Any, dtype: DType) -> Node:
        first, second = self._operand(a, b), self._operand(b, a)
        if name in _WRAPPING:
            pair = (self._narrow(first), self._narrow(second))
            return self._as(self.node(_WRAPPING[name], pair, I32), dtype)
        signed = [bool(value.dtype is None or value.dtype.signed) for value in (first, second)]
        if all(signed) or not any(signed):
            pair, sign = (self._narrow(first), self._narrow(second)), "s" if all(signed) else "u"
        else:
            pair, sign = (self._wide(first), self._wide(second)), "s"
        predicate = _PREDICATES[name]
        mask = self.node("icompare", pair, MASK, predicate if predicate in ("eq", "ne") else sign + predicate)
        if name in ("maximum", "minimum"):
            pair = (self._narrow(first), self._narrow(second))
            return self._as(self.node("select", (mask, *pair), I32), dtype)
        return self._as(self.node("extend_unsigned", (mask,), I32), dtype)

    def _operand(self, value: Any, other: Any) -> Node:
        """A number takes the dtype of the other operand, of which it is one."""
        if type(value) is not int:
            return self.storage(value)
        like = self.storage(other)
        assert like.dtype is not None, "storage values know what they hold"
        if not like.dtype.is_integer or not like.dtype.min <= value <= like.dtype.max:
            raise NotTraceable("a number beyond the integers it meets")
        return self.storage_constant(value, like)

    def _narrow(self, value: Node) -> Node:
        if value.type == I32:
            return value
        signed = value.dtype is not None and value.dtype.signed
        return self.node("extend_signed" if signed else "extend_unsigned", (value,), I32)

    def _wide(self, value: Node) -> Node:
        signed = value.dtype is not None and value.dtype.signed
        return self.node("extend_signed" if signed else "extend_unsigned", (value,), I64)

    def _as(self, value: Node, dtype: DType) -> Node:
        """The low bits as a storage integer."""
        kind = storage_type(dtype)
        return self.node("as" if kind == I32 else "truncate", (value,), kind, dtype.name, dtype)

    def affine(self, partitions: int, pattern: Sequence[tuple[int, int]], offset: int, multiplier: int) -> Node:
        value = self._number(offset)
        if multiplier:
            if partitions == 1:
                raise NotTraceable("one row of positions for many")
            number = self.graph.leaf("partition", None, I32, COLUMN)
            value = self.node("iadd", (value, self.node("imultiply", (number, self._number(multiplier)), I32)), I32)
        pairs = _merged(pattern)
        if pairs:
            value = self.node("iadd", (value, self._position(pairs)), I32)
        return self.node("as", (value,), I32, int32.name, int32)

    def _number(self, value: int) -> Node:
        return self.immediate(value % (1 << 32), I32)

    def _position(self, pairs: Sequence[tuple[int, int]]) -> Node:
        """The sum of step times index, the indices being digits of the number of the element."""
        count = 1
        for _, size in pairs:
            count *= size
        left: Node = self.graph.leaf("position", None, I32, ROW, self.domain(count))
        total: Node | None = None
        for i, (step, size) in reversed(list(enumerate(pairs))):
            index = left
            if i:
                length = self._number(size)
                left = self.node("quotient", (left, length), I32)
                index = self.node("isubtract", (index, self.node("imultiply", (left, length), I32)), I32)
            part = self.node("imultiply", (index, self._number(step)), I32)
            total = part if total is None else self.node("iadd", (total, part), I32)
        assert total is not None, "there are pairs"
        return total

    def domain(self, count: int) -> int:
        """The row loop of this length."""
        raise NotTraceable("rows")


def _merged(pattern: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Fewest pairs that give the same numbers in the same order."""
    result: list[tuple[int, int]] = []
    for step, count in pattern:
        if count == 1:
            continue
        if result and result[-1][0] == step * count:
            result[-1] = (step, result[-1][1] * count)
        else:
            result.append((step, count))
    return result
