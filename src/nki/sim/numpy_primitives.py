"""The primitives of the elementary functions with NumPy values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nki.elementary import Functions
from nki.sim import fused

F32 = np.float32
I32 = np.int32
F64 = np.float64
PIECE = 1 << 14
"""Elements of which the values between the steps of a function stay in the cache."""

_FEW = 1 << 10

COMPARE: dict[str, Callable[..., Any]] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}


class NumpyPrimitives(Functions):
    """What `nki.elementary` needs, and its functions."""

    def elementwise(self, function: Callable[..., Any], *arguments: Any) -> Any:
        shape = np.shape(arguments[0]) if len(arguments) == 1 else np.broadcast_shapes(*map(np.shape, arguments))
        size = math.prod(shape)
        if size <= PIECE:
            return function(self, *arguments)
        flat = [np.broadcast_to(a, shape).reshape(-1) for a in arguments]
        result = np.empty(size, F32)
        for start in range(0, size, PIECE):
            piece = slice(start, start + PIECE)
            result[piece] = function(self, *[a[piece] for a in flat])
        return result.reshape(shape)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return fused.multiply_add(a, b, c)

    def scaled(self, a: Any, n: Any) -> Any:
        return fused.scaled(a, n)

    def at_most(self, a: Any, bound: float) -> Any:
        return np.minimum(a, F32(bound))

    def at_least(self, a: Any, bound: float) -> Any:
        return np.maximum(a, F32(bound))

    def select(self, name: str, a: Any, b: Any, p: Any, q: Any) -> Any:
        mask = COMPARE[name](a, b)
        if mask.size < _FEW:
            return np.where(mask, p, q)
        if np.shape(q) == mask.shape and not mask.any():
            return q
        return _blend(mask, p.view(I32), q.view(I32))

    def float_bits(self, a: Any) -> Any:
        return np.asarray(a, F32).view(I32)

    def bits_float(self, i: Any) -> Any:
        return np.asarray(i, I32).view(F32)

    def int_constant(self, value: int) -> Any:
        return I32(value)

    def int_subtract(self, i: Any, j: Any) -> Any:
        return np.subtract(i, j, dtype=I32)

    def int_and(self, i: Any, j: Any) -> Any:
        return np.bitwise_and(i, j)

    def int_xor(self, i: Any, j: Any) -> Any:
        return np.bitwise_xor(i, j)

    def shift_left(self, i: Any, count: int) -> Any:
        return np.left_shift(i, I32(count))

    def shift_right(self, i: Any, count: int) -> Any:
        return np.right_shift(i, I32(count))

    def int_to_float(self, i: Any) -> Any:
        return np.asarray(i).astype(F32)

    def wide(self, a: Any) -> Any:
        return np.asarray(a, F64)

    def narrow(self, w: Any) -> Any:
        return np.asarray(w, F32)

    def wide_constant(self, value: float) -> Any:
        return F64(value)

    def wide_add(self, v: Any, w: Any) -> Any:
        return np.add(v, w, dtype=F64)

    def wide_subtract(self, v: Any, w: Any) -> Any:
        return np.subtract(v, w, dtype=F64)

    def wide_multiply(self, v: Any, w: Any) -> Any:
        return np.multiply(v, w, dtype=F64)

    def wide_divide(self, v: Any, w: Any) -> Any:
        return np.divide(v, w, dtype=F64)


def _blend(mask: Any, p: Any, q: Any) -> Any:
    """``np.where(mask, p, q)`` of the bits of float32, without its branches: several times as fast."""
    ones = np.negative(mask.view(np.int8), dtype=I32)
    return (((p ^ q) & ones) ^ q).view(F32)
