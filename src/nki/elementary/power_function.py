"""Powers of real numbers: ``2 ** (b * log2 |a|)`` with a float64 logarithm, and the special cases of C99."""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.bits import WHOLE, sign_of, with_sign
from nki.elementary.exponential import NEAR_ONE
from nki.elementary.logarithm import split
from nki.elementary.polynomial import polynomial, wide_polynomial
from nki.spec.arrays import Arrays

_BOUND = 200.0  # 2**200 is infinite, 2**-200 is 0
# log2((1 + s) / (1 - s)) = s * p(s * s), by its series: for |s| <= 1/5 the rest is below 2**-43 of it
_LOG2 = tuple(2 / math.log(2) / (2 * n + 1) for n in range(9))


def power(x: Arrays, a: Any, b: Any) -> Any:
    """``a ** b`` as C99's ``pow``, within 1 ulp.

    1 if b is 0 or a is 1, even with NaN; NaN for a negative finite number to a power that is not whole.
    """
    magnitude, one, zero = x.absolute(a), x.constant(1.0), x.constant(0.0)
    result = x.select("equal", magnitude, one, one, _exp2(x, *_exponent(x, magnitude, b)))
    half = x.multiply(b, x.constant(0.5))
    minus = x.select("equal", x.floor(half), half, zero, x.constant(-0.0))
    minus = x.select("equal", x.floor(b), b, minus, zero)
    result = with_sign(x, result, x.int_and(x.float_bits(minus), sign_of(x, a)))
    invalid = x.select("equal", x.floor(b), b, zero, one)
    invalid = x.select("less", a, zero, invalid, zero)
    invalid = x.select("greater", a, x.constant(-math.inf), invalid, zero)
    result = x.select("not_equal", invalid, zero, x.constant(math.nan), result)
    result = x.select("not_equal", a, a, a, result)
    result = x.select("not_equal", b, b, b, result)
    return x.select("equal", b, zero, one, x.select("equal", a, one, one, result))


def _exponent(x: Arrays, magnitude: Any, b: Any) -> tuple[Any, Any]:
    """``b * log2(magnitude)`` as float64 and as float32; only the latter is right for 0 and infinity."""
    e, f = split(x, magnitude)
    f = x.wide(f)
    s = x.wide_divide(f, x.wide_add(f, x.wide_constant(2.0)))
    logarithm = x.wide_add(x.wide(e), x.wide_multiply(wide_polynomial(x, _LOG2, x.wide_multiply(s, s)), s))
    z = x.wide_multiply(logarithm, x.wide(b))
    infinity = x.constant(math.inf)
    rounded = x.select("equal", magnitude, infinity, x.multiply(b, infinity), x.narrow(z))
    return z, x.select("equal", magnitude, x.constant(0.0), x.multiply(b, x.constant(-math.inf)), rounded)


def _exp2(x: Arrays, z: Any, rounded: Any) -> Any:
    """``2 ** z`` for a float64 z within the bound; beyond it `rounded` says which way."""
    whole = x.constant(WHOLE)
    k = x.subtract(x.add(x.at_most(x.at_least(rounded, -_BOUND), _BOUND), whole), whole)
    r = x.narrow(x.wide_multiply(x.wide_subtract(z, x.wide(k)), x.wide_constant(math.log(2))))
    return x.scaled(polynomial(x, NEAR_ONE, x.at_most(x.at_least(r, -0.5), 0.5)), k)
