"""The bell curve without its constant factor, and the tail of the normal distribution in units of it."""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.coefficients import TAIL
from nki.elementary.exponential import lifted_decay_of_sum
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

_ENOUGH = 110.0  # exp of less than minus that is 0, even times 128


def lifted_gaussian(x: Arrays, t: Any, factor: float) -> Any:
    """``exp(-factor * t * t) / DROP`` for t >= 0 and a factor of 0.5 or 1, within 1 ulp.

    The square comes with what its rounding left, because its error would be multiplied by the square itself.
    """
    t = x.at_most(t, math.sqrt(_ENOUGH / factor))
    part = t if factor == 1 else x.multiply(t, x.constant(factor))
    square = x.multiply(t, part)
    return lifted_decay_of_sum(x, square, x.multiply_add(t, part, x.subtract(x.constant(0.0), square)))


def scaled_tail(x: Arrays, t: Any) -> Any:
    """``exp(t * t / 2)`` times the probability that a normal variable lies beyond t, for 0 <= t, within 3.5 ulps.

    The fit ends where the product of the tail and the bell curve is 0 anyway.
    """
    t = x.at_most(t, math.sqrt(2 * _ENOUGH))
    w = x.divide(x.constant(1.0), x.add(t, x.constant(1.5)))
    q = x.multiply_add(w, x.constant(-3.0), x.constant(1.0))
    return x.multiply(polynomial(x, TAIL, q), w)
