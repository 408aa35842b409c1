"""The remainder of floats, exact however large the quotient is: long division with digits of 21 bits."""

from __future__ import annotations

import math

from nki.core.dtypes import DType, float16, float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.graph.emit.kit.engines import EngineOps, Splat
from nki.isa import alu

_DIGIT = 21
"""Bits of a digit: a quotient of two more is wrong by less than 1, so that what is left is below the divisor."""

_BIAS = 127
_EXPONENT = 0xFF << 23
_SIGNIFICAND = (1 << 23) - 1
_UPPER_HALF = 0xFFFF_F000
"""Sign, exponent and 11 bits of the significand of a float32: products of such numbers are exact."""

_WIDEST = 2 * _BIAS
"""How many bits a quotient of normal float32 may have."""

_WIDEST_HALF = 16 + 24
"""How many bits a quotient of float16 may have, whose subnormal numbers are normal as float32."""


def remainder(e: EngineOps, a: NkiTensor, b: NkiTensor, dtype: DType) -> NkiTensor:
    """The rest of ``a / b`` with the sign of a; NaN for infinite a and for b = 0. Subnormal float32 may count as 0."""
    shape = e.common(a, b)
    bits = _WIDEST_HALF if a.dtype == b.dtype == float16 else _WIDEST
    a, b = (e.copy(e.fit(tile, shape), float32, e.new(shape, float32)) for tile in (a, b))
    size_a, size_b = e.scalar(a, alu.ABS, 0.0), e.scalar(b, alu.ABS, 0.0)
    left = _rest_of_significands(e, size_a, size_b, bits)
    left = e.binary(left, e.bits(size_b.view(uint32), alu.BITWISE_AND, _EXPONENT).view(float32), alu.MULTIPLY)
    e.replace(left, e.binary(size_a, size_b, alu.LESS, uint8), size_a)
    finite = e.scalar(size_a, alu.LESS_EQUAL, FP32_MAX, dtype=float32)
    defined = e.binary(finite, e.scalar(size_b, alu.GREATER, 0.0, dtype=float32), alu.MULTIPLY, uint8)
    signs = e.bits(a.view(uint32), alu.BITWISE_AND, 1 << 31)
    signed = e.binary(left.view(uint32), signs, alu.BITWISE_OR).view(float32)
    result = e.where(defined, signed, Splat(math.nan), float32)
    return result if dtype == float32 else e.copy(result, dtype)


def _rest_of_significands(e: EngineOps, a: NkiTensor, b: NkiTensor, bits: int) -> NkiTensor:
    """The rest of a by b for a >= b > 0, divided by the power of two of b."""
    rest, divisor = _significand(e, a), _significand(e, b)
    inverse = e.inverse(divisor)
    parts = _halves(e, divisor)
    exponent_a, exponent_b = (e.bits(tile.view(uint32), alu.RIGHT_SHIFT, 23) for tile in (a, b))
    remaining = e.binary(exponent_a, exponent_b, alu.SUBTRACT, float32)
    for _ in range(-(-bits // _DIGIT)):
        power = e.scalar(remaining, alu.MINIMUM, float(_DIGIT), alu.MAXIMUM, 0.0)
        power = e.bits(e.scalar(power, alu.ADD, float(_BIAS), dtype=uint32), alu.LEFT_SHIFT, 23).view(float32)
        remaining = e.scalar(remaining, alu.SUBTRACT, float(_DIGIT))
        rest = e.binary(rest, power, alu.MULTIPLY)
        digit = e.copy(e.binary(rest, inverse, alu.MULTIPLY, int32), float32)
        for left in _halves(e, digit):
            for right in parts:
                rest = e.binary(rest, e.binary(left, right, alu.MULTIPLY), alu.SUBTRACT)
    return e.binary(rest, e.binary(divisor, e.scalar(rest, alu.LESS, 0.0), alu.MULTIPLY), alu.ADD)


def _significand(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """From 1 to 2."""
    bits = e.bits(x.view(uint32), alu.BITWISE_AND, _SIGNIFICAND, alu.BITWISE_OR, _BIAS << 23)
    return bits.view(float32)


def _halves(e: EngineOps, x: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    upper = e.bits(x.view(uint32), alu.BITWISE_AND, _UPPER_HALF).view(float32)
    return upper, e.binary(x, upper, alu.SUBTRACT)
