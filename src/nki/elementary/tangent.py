"""The hyperbolic tangent, ``(1 - e) / (1 + e)`` with ``e = exp(-2 * |a|)``, of which ``1 - e`` is computed directly."""

from __future__ import annotations

from typing import Any

from nki.elementary.bits import BIAS, WHOLE, power_of_two, sign_of, with_sign
from nki.elementary.exponential import LN2_HIGH, LN2_LOW, PER_LN2, near_zero
from nki.spec.arrays import Arrays

_ENOUGH = 10.0  # from 9.02 on the result is 1


def tanh(x: Arrays, a: Any) -> Any:
    """``tanh(a)``, within 2 ulps."""
    t = x.at_most(x.absolute(a), _ENOUGH)
    t = x.add(t, t)
    whole = x.constant(WHOLE + BIAS)
    sum_ = x.subtract(whole, x.multiply(t, x.constant(PER_LN2)))
    k = x.subtract(whole, sum_)
    r = x.add(x.subtract(x.multiply(k, x.constant(LN2_HIGH)), t), x.multiply(k, x.constant(LN2_LOW)))
    scale = power_of_two(x, x.float_bits(sum_))
    rest, one = x.multiply(near_zero(x, r), scale), x.constant(1.0)
    drop = x.subtract(x.subtract(one, scale), rest)
    total = x.add(x.add(scale, one), rest)
    return with_sign(x, x.divide(drop, total), sign_of(x, a))
