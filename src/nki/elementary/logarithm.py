"""The natural logarithm, also that of 1 + a without rounding the sum.

A positive number is ``2**e * (1 + f)`` with a whole number e and ``2/3 <= 1 + f < 4/3``; a polynomial gives
``log(1 + f)``.
"""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.bits import BIAS, FRACTION_BITS
from nki.elementary.coefficients import LOG, LOG_UNIT
from nki.elementary.exponential import LN2_HIGH, LN2_LOW
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

_TWO_THIRDS = 0x3F2AAAAB
_ONE = BIAS << FRACTION_BITS
_NORMAL = 2.0**-126
_LARGE = 2.0**60  # where 1 is less than half an ulp, and the scale has an exponent yet


def log(x: Arrays, a: Any) -> Any:
    """``log(a)``, within 1 ulp; -inf for zeros, NaN for negative numbers."""
    shift, f = split(x, a)
    return _special(x, a, x.constant(0.0), _of_parts(x, shift, f))


def log1p(x: Arrays, a: Any) -> Any:
    """``log(1 + a)``, within 2 ulps; -inf for -1, NaN below."""
    one = x.constant(1.0)
    total = x.add(a, one)
    added = x.subtract(total, one)
    lost = x.add(x.subtract(one, x.subtract(total, added)), x.subtract(a, added))
    shifted = _exponent_bits(x, total)
    f = _fraction(x, total, shifted)
    scale = x.bits_float(x.int_subtract(x.int_constant(_ONE), shifted))
    scale = x.select("less", a, x.constant(_LARGE), scale, x.constant(0.0))
    f = x.multiply_add(lost, scale, f)
    result = _of_parts(x, x.int_to_float(x.shift_right(shifted, FRACTION_BITS)), f)
    return x.select("equal", total, one, a, _special(x, a, x.constant(-1.0), result))


def log1p_unit(x: Arrays, a: Any) -> Any:
    """``log(1 + a)`` for 0 <= a <= 1, within 2 ulps: ``2 * artanh(s / 2)`` with ``s = 2 * a / (2 + a)``."""
    s = x.divide(x.add(a, a), x.add(a, x.constant(2.0)))
    square = x.multiply(s, s)
    return x.multiply_add(x.multiply(polynomial(x, LOG_UNIT, square), square), s, s)


def split(x: Arrays, a: Any) -> tuple[Any, Any]:
    """(e, f) of positive finite numbers, ``a = 2**e * (1 + f)``, both exact float32; of others something finite."""
    tiny = x.constant(_NORMAL)
    normal = x.select("less", a, tiny, x.multiply(a, x.constant(2.0**FRACTION_BITS)), a)
    shift = x.select("less", a, tiny, x.constant(-float(FRACTION_BITS)), x.constant(0.0))
    shifted = _exponent_bits(x, normal)
    e = x.add(x.int_to_float(x.shift_right(shifted, FRACTION_BITS)), shift)
    return e, _fraction(x, normal, shifted)


def _exponent_bits(x: Arrays, a: Any) -> Any:
    """``e << 23`` of normal numbers."""
    offset = x.int_subtract(x.float_bits(a), x.int_constant(_TWO_THIRDS))
    return x.int_and(offset, x.int_constant(-(1 << FRACTION_BITS)))


def _fraction(x: Arrays, a: Any, shifted: Any) -> Any:
    return x.subtract(x.bits_float(x.int_subtract(x.float_bits(a), shifted)), x.constant(1.0))


def _of_parts(x: Arrays, e: Any, f: Any) -> Any:
    """``e * log(2) + log(1 + f)``, the smallest parts first."""
    square = x.multiply(f, f)
    rest = x.multiply_add(square, polynomial(x, (-0.5, *LOG), f), x.multiply(e, x.constant(LN2_LOW)))
    return x.multiply_add(e, x.constant(LN2_HIGH), x.add(rest, f))


def _special(x: Arrays, a: Any, pole: Any, result: Any) -> Any:
    """`result`, but NaN below the pole, -inf at it, and infinity and NaN as they are."""
    result = x.select("less", a, x.constant(math.inf), result, a)
    result = x.select("less", a, pole, x.constant(math.nan), result)
    return x.select("equal", a, pole, x.constant(-math.inf), result)
