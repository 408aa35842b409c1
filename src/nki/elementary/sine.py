"""The sine: whole multiples of pi are taken off in three parts, the first exactly; a polynomial does the rest."""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.bits import WHOLE, sign_of, with_sign
from nki.elementary.coefficients import SIN
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

LIMIT = 2.0**21
"""Beyond this magnitude the sine is NaN: float32 numbers are 1/4 apart there, which no caller can want."""

_PARTS = (0xC90FDA / 2.0**22, 0xA22168 / 2.0**46, 0xC234C4 / 2.0**70)
"""pi as the sum of three float32 numbers, each the next 24 bits."""
_SIGN_BIT = 31


def sin(x: Arrays, a: Any) -> Any:
    """``sin(a)`` for ``|a| <= LIMIT``, NaN beyond; within 2 ulps to 2**17, and 8 from there on.

    The leading coefficient is multiplied alone: if its sum with the others were rounded, results next to 1 would err by
    half an ulp more, and some would be greater than 1.
    """
    magnitude, whole = x.absolute(a), x.constant(WHOLE)
    sum_ = x.multiply_add(magnitude, x.constant(1 / math.pi), whole)
    k = x.subtract(sum_, whole)
    r = magnitude
    for part in _PARTS:
        r = x.multiply_add(k, x.constant(-part), r)
    square = x.multiply(r, r)
    small = x.multiply(square, polynomial(x, SIN[1:], square))
    factor = x.multiply_add(square, x.constant(SIN[0]), x.multiply(square, small))
    result = x.multiply_add(r, factor, r)
    odd = x.shift_left(x.float_bits(sum_), _SIGN_BIT)
    result = with_sign(x, result, x.int_xor(odd, sign_of(x, a)))
    return x.select("greater", magnitude, x.constant(LIMIT), x.constant(math.nan), result)
