"""The hyperbolic tangent, ``(1 - e) / (1 + e)`` with ``e = exp(-2 * |a|)``, of which ``1 - e`` is computed directly."""

from __future__ import annotations

from typing import Any

from nki.elementary.bits import BIAS, power_of_two, sign_of, with_sign
from nki.elementary.coefficients import EXP
from nki.elementary.exponential import PER_LN2, reduced
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

_ENOUGH = 10.0  # from 9.02 on the result is 1


def tanh(x: Arrays, a: Any) -> Any:
    """``tanh(a)``, within 2 ulps."""
    double = x.multiply(x.at_most(x.absolute(a), _ENOUGH), x.constant(-2.0))
    sum_, _, r = reduced(x, double, PER_LN2, BIAS)
    scale, one = power_of_two(x, x.float_bits(sum_)), x.constant(1.0)
    near_zero = x.multiply_add(x.multiply(r, r), polynomial(x, EXP, r), r)
    drop = x.multiply_add(near_zero, x.negative(scale), x.subtract(one, scale))
    total = x.multiply_add(near_zero, scale, x.add(one, scale))
    return with_sign(x, x.divide(drop, total), sign_of(x, a))
