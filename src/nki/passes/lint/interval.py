"""Intervals of numbers that know whether their ends occur, and which power of two divides all of them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

MANTISSA = 24
"""Bits that a float32 holds."""


class Interval(NamedTuple):
    """Where all values lie.

    Attributes:
        low, high: ends.
        reached: whether both ends certainly occur.
        unit: the largest known power of two of which all values are multiples; 0 for values that are no integers.
    """

    low: float
    high: float
    reached: bool
    unit: int

    @property
    def rounds(self) -> bool:
        """Whether some of these integers are certainly none that float32 holds.

        Values that float32 holds up to ``2**24`` units; beyond that an odd multiple of the unit is lost.
        """
        limit = self.unit << MANTISSA
        return self.reached and bool(self.unit) and (self.high > limit or self.low < -limit)

    @property
    def fits(self) -> bool:
        """Whether a signed integer of 32 bits holds all values."""
        return self.low >= -(1 << 31) and self.high < 1 << 31

    def surely_above(self, limit: float) -> bool:
        """Whether some value is certainly above a limit."""
        return self.low > limit or (self.reached and self.high > limit)


def constant(value: float) -> Interval | None:
    """One number; None for nan and infinities."""
    if not isfinite(value):
        return None
    whole = int(value)
    return Interval(value, value, True, (whole & -whole or 1 << 31) if whole == value else 0)


def of_values(values: np.ndarray) -> Interval | None:
    """The numbers of an array; None for other dtypes, and if some are not finite."""
    if values.dtype.kind not in "iuf":
        return None
    if values.dtype.kind == "f":
        return Interval(float(values.min()), float(values.max()), True, 0) if np.isfinite(values).all() else None
    bits = int(np.bitwise_or.reduce(np.abs(values.astype(np.int64)).reshape(-1)))
    return Interval(int(values.min()), int(values.max()), True, bits & -bits or 1 << 31)


def progression(start: int, steps: Iterable[tuple[int, int]]) -> Interval:
    """``start + sum(k * step for k < count)`` over all ``(step, count)``."""
    low = high = start
    bits = start
    for step, count in steps:
        reach = step * (count - 1)
        low, high = low + min(0, reach), high + max(0, reach)
        bits |= step if count > 1 else 0
    return Interval(low, high, True, bits & -bits or 1 << 31)


def combined(op: str, a: Interval | None, b: Interval | None) -> Interval | None:
    """``a <op> b`` for operators that are monotone in each operand; None for others, and for what is unknown.

    The ends occur if those of one operand do and the other one is one number.
    """
    if a is None or b is None:
        return None
    match op:
        case "add":
            ends = (a.low + b.low, a.high + b.high)
        case "subtract":
            ends = (a.low - b.high, a.high - b.low)
        case "multiply":
            products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
            ends = (min(products), max(products))
        case "maximum":
            ends = (max(a.low, b.low), max(a.high, b.high))
        case "minimum":
            ends = (min(a.low, b.low), min(a.high, b.high))
        case _:
            return None
    if not all(-inf < end < inf for end in ends):
        return None
    reached = a.reached and b.reached and (a.low == a.high or b.low == b.high)
    unit = a.unit * b.unit if op == "multiply" else min(a.unit, b.unit)
    return Interval(*ends, reached, min(unit, 1 << 40))
