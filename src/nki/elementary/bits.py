"""The bits of float32: signs, powers of two, and whole numbers by addition."""

from __future__ import annotations

from typing import Any

from nki.spec.arrays import Arrays

SIGN = -(2**31)
FRACTION_BITS = 23
BIAS = 127
WHOLE = 1.5 * 2.0**23
"""Added to |a| < 2**22 it rounds a to a whole number, ties to even, which is then in the low bits of the sum."""


def sign_of(x: Arrays, a: Any) -> Any:
    """The sign bit of float32, alone in an int32."""
    return x.int_and(x.float_bits(a), x.int_constant(SIGN))


def with_sign(x: Arrays, magnitude: Any, sign: Any) -> Any:
    """Float32 with the sign bits flipped where `sign`, an int32, has one."""
    return x.bits_float(x.int_xor(x.float_bits(magnitude), sign))


def power_of_two(x: Arrays, field: Any) -> Any:
    """The float32 whose exponent field is in the low bits of an int32; higher bits must be a multiple of 2**9."""
    return x.bits_float(x.shift_left(field, FRACTION_BITS))
