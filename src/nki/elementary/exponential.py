"""The exponential function, for all arguments and for those that are not positive.

The argument is ``k * log(2) + r`` with a whole number k and ``|r| <= log(2) / 2``, the difference rounded once; a
polynomial gives ``exp(r)``, and the multiplication by ``2**k`` rounds only subnormal results.
"""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.bits import BIAS, WHOLE, power_of_two
from nki.elementary.coefficients import EXP
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

PER_LN2 = 1 / math.log(2)
LN2_HIGH = 0xB17218 / 2.0**24  # float32; what it leaves of an argument is exact
LN2_LOW = math.log(2) - LN2_HIGH

_LARGEST, _SMALLEST = 89.0, -110.0  # beyond them the results are infinity and 0
_LIFT = 64
DROP = 2.0**-_LIFT

NEAR_ONE = (1.0, 1.0, *EXP)
"""Coefficients of ``e**r`` for ``|r| <= log(2) / 2``."""

_OF_MINUS = tuple(-c if n % 2 else c for n, c in enumerate(NEAR_ONE))
"""Coefficients of ``e**-r`` for ``|r| <= log(2) / 2``."""


def exp(x: Arrays, a: Any) -> Any:
    """``e**a``, within 1 ulp."""
    a = x.at_most(x.at_least(a, _SMALLEST), _LARGEST)
    _, k, r = reduced(x, a, PER_LN2, 0)
    return x.scaled(polynomial(x, NEAR_ONE, r), k)


def decay(x: Arrays, t: Any) -> Any:
    """``e**-t`` for t >= 0, within 1 ulp."""
    _, k, r = reduced(x, x.at_most(t, -_SMALLEST), -PER_LN2, 0)
    return x.scaled(polynomial(x, _OF_MINUS, r), k)


def lifted_decay(x: Arrays, t: Any) -> Any:
    """``e**-t / DROP`` for t >= 0, within 1 ulp.

    Who multiplies it and then by `DROP` loses nothing where ``e**-t`` itself is subnormal.
    """
    sum_, _, r = reduced(x, x.at_most(t, -_SMALLEST), -PER_LN2, BIAS + _LIFT)
    return x.multiply(polynomial(x, _OF_MINUS, r), power_of_two(x, x.float_bits(sum_)))


def lifted_decay_of_sum(x: Arrays, t: Any, rest: Any) -> Any:
    """``e**-(t + rest) / DROP`` for 0 <= t <= 110 and a `rest` of at most 0.05 in magnitude, within 1 ulp."""
    sum_, k, r = partly_reduced(x, t, -PER_LN2, BIAS + _LIFT)
    r = x.add(r, x.multiply_add(k, x.constant(LN2_LOW), rest))
    return x.multiply(polynomial(x, _OF_MINUS, r), power_of_two(x, x.float_bits(sum_)))


def complement(x: Arrays, t: Any) -> Any:
    """``1 - e**-t`` for 1.8 <= t <= 80, within 0.7 ulps."""
    sum_, _, r = reduced(x, t, -PER_LN2, BIAS)
    scale = power_of_two(x, x.float_bits(sum_))
    return x.multiply_add(polynomial(x, _OF_MINUS, r), x.negative(scale), x.constant(1.0))


def reduced(x: Arrays, a: Any, per: float, offset: int) -> tuple[Any, Any, Any]:
    """(sum, k, r): the whole number k next to ``a * per``, ``k + (WHOLE + offset)``, and what k leaves of a.

    That is ``a - k * log(2)`` if `per` is ``1 / log(2)``, and ``a + k * log(2)`` if it is negative.
    """
    sum_, k, r = partly_reduced(x, a, per, offset)
    return sum_, k, x.multiply_add(k, x.constant(LN2_LOW if per < 0 else -LN2_LOW), r)


def partly_reduced(x: Arrays, a: Any, per: float, offset: int) -> tuple[Any, Any, Any]:
    """(sum, k, r) as of `reduced`, with `LN2_HIGH` for ``log(2)``, so that the difference r is exact."""
    whole = x.constant(WHOLE + offset)
    sum_ = x.multiply_add(a, x.constant(per), whole)
    k = x.subtract(sum_, whole)
    return sum_, k, x.multiply_add(k, x.constant(LN2_HIGH if per < 0 else -LN2_HIGH), a)
