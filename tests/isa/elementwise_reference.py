"""References for element-wise operators: one element at a time, in extended precision or in Python integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import nki.language as nl

F32 = np.float32
ARITHMETIC: dict[Any, Callable[[Any, Any], Any]] = {
    nl.add: lambda a, b: a + b,
    nl.subtract: lambda a, b: a - b,
    nl.multiply: lambda a, b: a * b,
    nl.maximum: max,
    nl.minimum: min,
    nl.equal: lambda a, b: a == b,
    nl.not_equal: lambda a, b: a != b,
    nl.greater: lambda a, b: a > b,
    nl.greater_equal: lambda a, b: a >= b,
    nl.less: lambda a, b: a < b,
    nl.less_equal: lambda a, b: a <= b,
    nl.logical_and: lambda a, b: bool(a) and bool(b),
    nl.logical_or: lambda a, b: bool(a) or bool(b),
    nl.logical_xor: lambda a, b: bool(a) != bool(b),
}
ABSOLUTE = {
    nl.abs_max: lambda a, b: a if abs(a) > abs(b) else b,
    nl.abs_min: lambda a, b: a if abs(a) < abs(b) else b,
}
UNARY = {
    nl.abs: lambda a, _: abs(a),
    nl.rsqrt: lambda a, _: 1 / np.sqrt(a),
    nl.reciprocal: lambda a, _: 1 / a,
}
UNARY_NEW = {nl.square: lambda a, _: a * a, nl.relu: lambda a, _: max(a, np.longdouble(0))}
_POWER = {nl.power: lambda a, b: np.longdouble(math.pow(a, b))}
FLOAT = {**ARITHMETIC, **ABSOLUTE, **UNARY, **UNARY_NEW, **_POWER}
"""What every arithmetic operator computes, on extended floats or Python integers."""

BITS: dict[Any, Callable[[int, int, int], int]] = {
    nl.bitwise_and: lambda a, b, width: a & b,
    nl.bitwise_or: lambda a, b, width: a | b,
    nl.bitwise_xor: lambda a, b, width: a ^ b,
    nl.left_shift: lambda a, b, width: a * 2**b if b < width else 0,
    nl.right_shift: lambda a, b, width: a // 2**b if b < width else 0,
    nl.invert: lambda a, b, width: 2**width - 1 - a,
}
"""What every bitvec operator computes, on unsigned Python integers of a width."""


def cast(values: Any, dtype: Any) -> np.ndarray:
    """Float32 values as the engines store them: integers to nearest and saturated."""
    values = np.asarray(values, F32)
    if not np.issubdtype(dtype, np.integer):
        return values.astype(dtype)
    info = np.iinfo(dtype)
    return np.array([min(max(round(float(v)), info.min), info.max) for v in values.ravel()], dtype).reshape(
        values.shape
    )


def in_float32(op: Any, dtype: Any = F32) -> Callable[[Any, Any], np.ndarray]:
    """Element by element with one rounding to float32 and one to the dtype."""

    def expected(a: Any, b: Any) -> np.ndarray:
        pairs = zip(a.astype(F32).ravel(), b.astype(F32).ravel(), strict=True)
        return cast(np.reshape([F32(FLOAT[op](np.longdouble(x), np.longdouble(y))) for x, y in pairs], a.shape), dtype)

    return expected


def wrapped(number: int, dtype: Any) -> int:
    """The integer of the dtype that has the same low bits."""
    info = np.iinfo(dtype)
    return (number - info.min) % 2**info.bits + info.min


def exactly(op: Any, dtype: Any) -> Callable[[Any, Any], np.ndarray]:
    """Element by element in Python integers that wrap."""

    def expected(a: Any, b: Any) -> np.ndarray:
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        return np.reshape([wrapped(int(FLOAT[op](x, y)), dtype) for x, y in pairs], a.shape).astype(dtype)

    return expected


def in_bits(op: Any, dtype: Any) -> Callable[[Any, Any], np.ndarray]:
    """Element by element on unsigned Python integers."""

    def expected(a: Any, b: Any) -> np.ndarray:
        width = np.iinfo(dtype).bits
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        results = [BITS[op](x % 2**width, y % 2**width, width) % 2**width for x, y in pairs]
        return np.reshape([wrapped(n, dtype) for n in results], a.shape).astype(dtype)

    return expected
