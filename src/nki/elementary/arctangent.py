"""The arctangent: a polynomial of a, or of -1 / a if a is above 1."""

from __future__ import annotations

import math
from typing import Any

from nki.elementary.bits import sign_of, with_sign
from nki.elementary.coefficients import ARCTAN
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

_HALF_PI_HIGH = 0xC90FDB / 2.0**23  # float32
_HALF_PI_LOW = math.pi / 2 - _HALF_PI_HIGH


def arctan(x: Arrays, a: Any) -> Any:
    """``arctan(a)``, within 1.5 ulps."""
    magnitude, one, zero = x.absolute(a), x.constant(1.0), x.constant(0.0)
    r = x.select("greater", magnitude, one, x.divide(x.constant(-1.0), magnitude), magnitude)
    high = x.select("greater", magnitude, one, x.constant(_HALF_PI_HIGH), zero)
    low = x.select("greater", magnitude, one, x.constant(_HALF_PI_LOW), zero)
    square = x.multiply(r, r)
    rest = x.multiply_add(x.multiply(square, polynomial(x, ARCTAN, square)), r, low)
    return with_sign(x, x.add(x.add(rest, r), high), sign_of(x, a))
