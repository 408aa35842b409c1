"""Powers of two: what the exponent field holds, and multiplication with one rounding."""

from __future__ import annotations

from typing import Any

from nki.elementary.bits import BIAS, FRACTION_BITS, WHOLE, power_of_two
from nki.spec.arrays import Arrays

_FIELD = 0xFF
_BOUND = 300.0  # beyond it everything is infinite or 0


def exponent(x: Arrays, a: Any) -> Any:
    """Unbiased exponent field as float32: floor(log2|a|), but -127 below 2**-126 and 128 for infinity and NaN."""
    field = x.int_and(x.shift_right(x.float_bits(a), FRACTION_BITS), x.int_constant(_FIELD))
    return x.subtract(x.int_to_float(field), x.constant(float(BIAS)))


def ldexp(x: Arrays, a: Any, n: Any) -> Any:
    """``a * 2**n`` with one rounding, for whole numbers n: a float64 holds all products that are neither 0 nor inf."""
    n = x.at_most(x.at_least(n, -_BOUND), _BOUND)
    third = x.floor(x.multiply(n, x.constant(1 / 3)))
    scale = x.wide(_power(x, third))
    scale = x.wide_multiply(x.wide_multiply(scale, scale), x.wide(_power(x, x.subtract(n, x.add(third, third)))))
    return x.narrow(x.wide_multiply(x.wide(a), scale))


def _power(x: Arrays, n: Any) -> Any:
    """``2 ** n`` for whole numbers of at most 126 in magnitude."""
    return power_of_two(x, x.float_bits(x.add(n, x.constant(WHOLE + BIAS))))
