"""Warnings, while a kernel runs, about 32-bit integers that arithmetic in float32 changes."""

from __future__ import annotations

from typing import Any

from nki.core.dtypes import int32, uint32
from nki.core.tensor import View
from nki.isa.alu import ADD, MULTIPLY, SUBTRACT
from nki.spec.arrays import Arrays
from nki.spec.operator import Operator

CODE = "lint.integer-precision"
_WHOLE = float(2**24 - 1)
"""Rounding gives at least the next number."""
_FIX = "use nisa.tensor_tensor on int32 tensors in SBUF, which GpSimd computes exactly, or bitvec operators"
_RANGES = {int32: (-(2.0**31), 2.0**31 - 128), uint32: (0.0, 2.0**32 - 256)}


def is_integer32(view: Any) -> bool:
    """A tensor of int32 or uint32."""
    return isinstance(view, View) and view.dtype in _RANGES


def check_loaded(x: Arrays, name: str, view: View, value: Any) -> None:
    """Warn if the float32 `value` of an operand is not the 32-bit integer that is stored there."""
    raw = x.load_raw(view)
    high = x.to_float(x.bitwise("right_shift", raw, x.rounded(16, view.dtype)))
    low = x.to_float(x.bitwise("bitwise_and", raw, x.rounded(0xFFFF, view.dtype)))
    exact = x.wide_add(x.wide_multiply(x.wide(high), x.wide_constant(65536.0)), x.wide(low))
    if view.dtype is int32:
        wrapped = x.select("less", value, x.constant(0.0), x.constant(2.0**32), x.constant(0.0))
        exact = x.wide_subtract(exact, x.wide(wrapped))
    _warn_rounded(x, value, exact, f"{name} holds integers that it rounds, one of them to {{value:.0f}}")


def check_step(x: Arrays, op: Operator, a: Any, b: Any, result: Any) -> None:
    """Warn if ``result = a <op> b`` of integers was rounded."""
    exact = {ADD: x.wide_add, SUBTRACT: x.wide_subtract, MULTIPLY: x.wide_multiply}.get(op)
    if exact is not None:
        _warn_rounded(
            x,
            result,
            exact(x.wide(a), x.wide(b)),
            f"nl.{op} gives integers that it rounds, one of them to {{value:.0f}}",
        )


def check_stored(x: Arrays, dst: View, result: Any) -> None:
    """Warn if 32-bit integers are too large for their dtype, which saturates."""
    low, high = _RANGES[dst.dtype]
    text = f"dst is {dst.dtype}, and the result {{value:.0f}} saturates"
    x.warn_outside(result, low, high, CODE, text, "keep the values in the range of dst, or use a float32 dst")


def check_sum(x: Arrays, data: View, result: Any) -> None:
    """Warn if a sum of 32-bit integers is too large to be exact."""
    text = (
        f"data is {data.dtype}, its sum is computed in float32, which holds integers up to 2**24, and is {{value:.0f}}"
    )
    x.warn_outside(result, -_WHOLE, _WHOLE, CODE, text, "sum fewer or smaller integers at a time, or halves of 16 bits")


def _warn_rounded(x: Arrays, value: Any, exact: Any, what: str) -> None:
    lost = x.narrow(x.wide_subtract(exact, x.wide(value)))
    rounded = x.select("equal", lost, x.constant(0.0), x.constant(0.0), value)
    x.warn_outside(
        rounded, -_WHOLE, _WHOLE, CODE, f"computed in float32, which holds integers up to 2**24: {what}", _FIX
    )
