"""Powers of two: what the exponent field holds, and multiplication with one rounding."""

from __future__ import annotations

from typing import Any

from nki.elementary.bits import BIAS, FRACTION_BITS
from nki.spec.arrays import Arrays

_FIELD = 0xFF
_BOUND = 300.0  # beyond it everything is infinite or 0


def exponent(x: Arrays, a: Any) -> Any:
    """Unbiased exponent field as float32: floor(log2|a|), but -127 below 2**-126 and 128 for infinity and NaN."""
    field = x.int_and(x.shift_right(x.float_bits(a), FRACTION_BITS), x.int_constant(_FIELD))
    return x.subtract(x.int_to_float(field), x.constant(float(BIAS)))


def ldexp(x: Arrays, a: Any, n: Any) -> Any:
    """``a * 2**n`` with one rounding, for whole numbers n, infinite ones too."""
    return x.scaled(a, x.at_most(x.at_least(n, -_BOUND), _BOUND))
