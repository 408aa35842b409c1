"""The exponential function, for all arguments and for those that are not positive.

The argument is ``k * log(2) + r`` with a whole number k and ``|r| <= log(2) / 2``; a polynomial gives ``exp(r)``, and
multiplications by two powers of two give the rest: the first is exact, the last rounds a subnormal result.
"""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.bits import BIAS, WHOLE, power_of_two
from nki.elementary.coefficients import EXP
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

PER_LN2 = 1 / math.log(2)
LN2_HIGH = 45426 / 2**16  # its 15 bits times a number of 8 bits are exact
LN2_LOW = math.log(2) - LN2_HIGH

_LARGEST, _SMALLEST = 89.0, -110.0  # beyond them the results are infinity and 0
_LIFT = 64
DROP = 2.0**-_LIFT


def exp(x: Arrays, a: Any) -> Any:
    """``e**a``, within 1 ulp."""
    a = x.at_most(x.at_least(a, _SMALLEST), _LARGEST)
    whole = x.constant(WHOLE + 2 * BIAS)
    sum_ = x.add(x.multiply(a, x.constant(PER_LN2)), whole)
    k = x.subtract(sum_, whole)
    r = x.subtract(x.subtract(a, x.multiply(k, x.constant(LN2_HIGH))), x.multiply(k, x.constant(LN2_LOW)))
    return scaled(x, near_one(x, r), sum_)


def decay(x: Arrays, t: Any) -> Any:
    """``e**-t`` for t >= 0, within 1 ulp."""
    return x.multiply(lifted_decay(x, t), x.constant(DROP))


def lifted_decay(x: Arrays, t: Any, rest: Any = None) -> Any:
    """``e**-t / DROP`` for t >= 0, within 1 ulp; with `rest`, of at most 0.05 in magnitude, ``e**-(t + rest) / DROP``.

    Who multiplies it and then by `DROP` loses nothing where ``e**-t`` itself is subnormal.
    """
    t = x.at_most(t, -_SMALLEST)
    whole = x.constant(WHOLE + BIAS + _LIFT)
    sum_ = x.subtract(whole, x.multiply(t, x.constant(PER_LN2)))
    k = x.subtract(whole, sum_)
    r = x.add(x.subtract(x.multiply(k, x.constant(LN2_HIGH)), t), x.multiply(k, x.constant(LN2_LOW)))
    if rest is not None:
        r = x.subtract(r, rest)
    return x.multiply(near_one(x, r), power_of_two(x, x.float_bits(sum_)))


def near_zero(x: Arrays, r: Any) -> Any:
    """``e**r - 1`` for ``|r| <= log(2) / 2``, to full relative precision."""
    return x.add(x.multiply(x.multiply(r, r), polynomial(x, EXP, r)), r)


def near_one(x: Arrays, r: Any) -> Any:
    """``e**r`` for ``|r| <= log(2) / 2``."""
    return x.add(near_zero(x, r), x.constant(1.0))


def scaled(x: Arrays, a: Any, sum_: Any) -> Any:
    """``a * 2**k`` with one rounding, for a near 1, -252 <= k <= 254, and ``sum_ = k + (WHOLE + 2 * BIAS)``."""
    fields = x.float_bits(sum_)
    half = x.shift_right(fields, 1)
    result = x.multiply(a, power_of_two(x, half))
    return x.multiply(result, power_of_two(x, x.int_subtract(fields, half)))
