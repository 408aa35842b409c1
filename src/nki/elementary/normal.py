"""The bell curve without its constant factor, and the tail of the normal distribution in units of it."""

from __future__ import annotations

from typing import Any

from nki.elementary.coefficients import TAIL
from nki.elementary.exponential import lifted_decay
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

_ENOUGH = 16.0  # exp(-t * t / 2) is 0 from 14.4 on
_SPLIT = 2.0**12 + 1  # halves the bits of a float32


def lifted_gaussian(x: Arrays, t: Any, factor: float) -> Any:
    """``exp(-factor * t * t) / DROP`` for t >= 0 and a factor of 0.5 or 1, within 1.2 ulps.

    t splits into a head whose square is exact and a rest, because the error of a rounded square would be multiplied by
    the square itself.
    """
    t = x.at_most(t, _ENOUGH)
    product = x.multiply(t, x.constant(_SPLIT))
    head = x.subtract(product, x.subtract(product, t))
    rest = x.multiply(x.subtract(t, head), x.add(t, head))
    square = x.multiply(head, head)
    if factor != 1:
        scale = x.constant(factor)
        square, rest = x.multiply(square, scale), x.multiply(rest, scale)
    return lifted_decay(x, square, rest)


def scaled_tail(x: Arrays, t: Any) -> Any:
    """``exp(t * t / 2)`` times the probability that a normal variable lies beyond t, for 0 <= t, within 5 ulps.

    The fit ends where the product of the tail and the bell curve is 0 anyway.
    """
    t = x.at_most(t, _ENOUGH)
    w = x.divide(x.constant(1.0), x.add(t, x.constant(4.0)))
    q = x.multiply(x.subtract(t, x.constant(4.0)), w)
    return x.multiply(polynomial(x, TAIL, q), w)
