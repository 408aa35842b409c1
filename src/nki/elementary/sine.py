"""The sine: whole multiples of pi are taken off in float64, and a polynomial does the rest."""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.bits import WHOLE, sign_of, with_sign
from nki.elementary.coefficients import SIN
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

LIMIT = 2.0**21
"""Beyond this magnitude the sine is NaN: float32 numbers are 1/4 apart there, which no caller can want."""

_PI_HIGH = 0x1921FB544 / 2.0**31  # 33 bits of pi: exact times numbers of 20 bits
_PI_LOW = 1.2154201013012384e-10
_SIGN_BIT = 31


def sin(x: Arrays, a: Any) -> Any:
    """``sin(a)`` for ``|a| <= LIMIT``, NaN beyond; within 2 ulps to 2**17, and 8 from there on."""
    magnitude = x.absolute(a)
    whole = x.constant(WHOLE)
    sum_ = x.add(x.multiply(magnitude, x.constant(1 / math.pi)), whole)
    k = x.wide(x.subtract(sum_, whole))
    r = x.wide_subtract(x.wide(magnitude), x.wide_multiply(k, x.wide_constant(_PI_HIGH)))
    r = x.narrow(x.wide_subtract(r, x.wide_multiply(k, x.wide_constant(_PI_LOW))))
    square = x.multiply(r, r)
    result = x.add(x.multiply(x.multiply(square, r), polynomial(x, SIN, square)), r)
    odd = x.shift_left(x.float_bits(sum_), _SIGN_BIT)
    result = with_sign(x, result, x.int_xor(odd, sign_of(x, a)))
    return x.select("greater", magnitude, x.constant(LIMIT), x.constant(math.nan), result)
