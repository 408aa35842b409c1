"""The error function: two polynomials, one of them under an exponential, joined at 1."""

from __future__ import annotations

from typing import Any

from nki.elementary.bits import sign_of, with_sign
from nki.elementary.coefficients import ERF_FAR, ERF_NEAR
from nki.elementary.exponential import complement
from nki.elementary.polynomial import polynomial
from nki.spec.arrays import Arrays

_FAR_LIMIT = 4.0  # from 3.92 on the result is 1


def erf(x: Arrays, a: Any) -> Any:
    """``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to a, within 1.3 ulps."""
    magnitude, one = x.at_most(x.absolute(a), _FAR_LIMIT), x.constant(1.0)
    near = polynomial(x, ERF_NEAR, x.multiply(magnitude, magnitude))
    near = x.multiply_add(near, magnitude, magnitude)
    far = complement(x, polynomial(x, ERF_FAR, x.subtract(magnitude, one)))
    return with_sign(x, x.select("less", magnitude, one, near, far), sign_of(x, a))
