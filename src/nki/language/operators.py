"""Operators with two operands: ``op=nl.add`` in an instruction, and ``nl.add(x, y)`` on tiles.

Called, each one allocates an SBUF tile and issues instructions for the current target. Operands are tiles in SBUF or
PSUM, and one of them may be a number; sizes of 1 repeat, partitions included. ``dtype`` is that of the result; by
default that of the tiles, or if they differ, that of `nki.language.combine.promoted`: the float, then the wider one.
Arithmetic is float32 and rounds once; int32 and uint32 combine exactly, on GpSimd. Comparisons and logical operators
give 1 or 0.
"""

from __future__ import annotations

import math
from typing import Any

from nki.core.dtypes import float32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.language.arguments import is_number, public, tile
from nki.language.combine import combine, promoted, two_numbers
from nki.language.unary import reciprocal
from nki.spec.operator import Operator, names_operator

bypass: Operator = alu.BYPASS
"""Passes data through: an operator of instructions only."""

average: Operator = alu.AVERAGE
"""Mean: an operator of nisa.tensor_partition_reduce only."""


@names_operator(alu.ADD)
@public
def add(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x + y``."""
    return combine(alu.ADD, x, y, dtype)


@names_operator(alu.SUBTRACT)
@public
def subtract(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x - y``."""
    return combine(alu.SUBTRACT, x, y, dtype)


@names_operator(alu.MULTIPLY)
@public
def multiply(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x * y``."""
    return combine(alu.MULTIPLY, x, y, dtype)


@public
def divide(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x / y`` as ``x * (1 / y)``: no engine divides.

    Both steps round to float32, so the quotient is off by up to 1.5 ulp; it is NaN where `y` is infinite and `x` too,
    where both are 0, and where `x` is 0 and ``1 / y`` overflows. Integers round to nearest in the result.
    """
    if is_number(y):
        if is_number(x):
            raise two_numbers("divide", x, y)
        return combine(alu.MULTIPLY, tile(x, "x", "divide"), _inverse(float(y)), dtype)
    divisor = tile(y, "y", "divide")
    own = divisor.dtype if is_number(x) else promoted(tile(x, "x", "divide").dtype, divisor.dtype)
    return combine(alu.MULTIPLY, x, reciprocal(divisor, dtype=float32), own if dtype is None else dtype)


@names_operator(alu.MAXIMUM)
@public
def maximum(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The larger one; NaN if one is NaN."""
    return combine(alu.MAXIMUM, x, y, dtype)


@names_operator(alu.MINIMUM)
@public
def minimum(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The smaller one; NaN if one is NaN."""
    return combine(alu.MINIMUM, x, y, dtype)


@names_operator(alu.ABS_MAX)
@public
def abs_max(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The operand of larger magnitude with its sign, `y` if both are equal; NeuronCore-v4 and later."""
    return combine(alu.ABS_MAX, x, y, dtype)


@names_operator(alu.ABS_MIN)
@public
def abs_min(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The operand of smaller magnitude with its sign, `y` if both are equal; NeuronCore-v4 and later."""
    return combine(alu.ABS_MIN, x, y, dtype)


@names_operator(alu.POWER)
@public
def power(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x ** y`` on GpSimd; PSUM tiles are copied, and a number becomes a column of a tile first."""
    return combine(alu.POWER, x, y, dtype)


@names_operator(alu.EQUAL)
@public
def equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where ``x == y``, else 0."""
    return combine(alu.EQUAL, x, y, dtype)


@names_operator(alu.NOT_EQUAL)
@public
def not_equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where ``x != y``, else 0."""
    return combine(alu.NOT_EQUAL, x, y, dtype)


@names_operator(alu.GREATER)
@public
def greater(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where ``x > y``, else 0."""
    return combine(alu.GREATER, x, y, dtype)


@names_operator(alu.GREATER_EQUAL)
@public
def greater_equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where ``x >= y``, else 0."""
    return combine(alu.GREATER_EQUAL, x, y, dtype)


@names_operator(alu.LESS)
@public
def less(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where ``x < y``, else 0."""
    return combine(alu.LESS, x, y, dtype)


@names_operator(alu.LESS_EQUAL)
@public
def less_equal(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where ``x <= y``, else 0."""
    return combine(alu.LESS_EQUAL, x, y, dtype)


@names_operator(alu.LOGICAL_AND)
@public
def logical_and(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where neither is 0, else 0."""
    return combine(alu.LOGICAL_AND, x, y, dtype)


@names_operator(alu.LOGICAL_OR)
@public
def logical_or(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where one is not 0, else 0."""
    return combine(alu.LOGICAL_OR, x, y, dtype)


@names_operator(alu.LOGICAL_XOR)
@public
def logical_xor(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """1 where exactly one is not 0, else 0."""
    return combine(alu.LOGICAL_XOR, x, y, dtype)


@names_operator(alu.BITWISE_AND)
@public
def bitwise_and(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x & y`` of integers of one size."""
    return combine(alu.BITWISE_AND, x, y, dtype)


@names_operator(alu.BITWISE_OR)
@public
def bitwise_or(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x | y`` of integers of one size."""
    return combine(alu.BITWISE_OR, x, y, dtype)


@names_operator(alu.BITWISE_XOR)
@public
def bitwise_xor(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x ^ y`` of integers of one size."""
    return combine(alu.BITWISE_XOR, x, y, dtype)


@names_operator(alu.LEFT_SHIFT)
@public
def left_shift(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x << y``; a count of the width or more gives 0."""
    return combine(alu.LEFT_SHIFT, x, y, dtype)


@names_operator(alu.RIGHT_SHIFT)
@public
def right_shift(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x >> y``, zeros come in (logical shift)."""
    return combine(alu.RIGHT_SHIFT, x, y, dtype)


def _inverse(value: float) -> float:
    return 1.0 / value if value else math.copysign(math.inf, value)
