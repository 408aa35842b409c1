"""The elementary functions as methods, which the array namespace of every executor inherits."""

from __future__ import annotations

from typing import Any

from nki.elementary.arctangent import arctan
from nki.elementary.error_function import erf
from nki.elementary.exponential import exp
from nki.elementary.logarithm import log, log1p
from nki.elementary.power_function import power
from nki.elementary.scaling import exponent, ldexp
from nki.elementary.sine import sin
from nki.elementary.tangent import tanh
from nki.spec.arrays import Arrays


class Functions:
    """The methods of `nki.spec.arrays.Arrays` whose meaning is defined by primitives."""

    def exp(self: Arrays, a: Any) -> Any:
        return self.elementwise(exp, a)

    def log(self: Arrays, a: Any) -> Any:
        return self.elementwise(log, a)

    def log1p(self: Arrays, a: Any) -> Any:
        return self.elementwise(log1p, a)

    def sin(self: Arrays, a: Any) -> Any:
        return self.elementwise(sin, a)

    def tanh(self: Arrays, a: Any) -> Any:
        return self.elementwise(tanh, a)

    def arctan(self: Arrays, a: Any) -> Any:
        return self.elementwise(arctan, a)

    def erf(self: Arrays, a: Any) -> Any:
        return self.elementwise(erf, a)

    def power(self: Arrays, a: Any, b: Any) -> Any:
        return self.elementwise(power, a, b)

    def exponent(self: Arrays, a: Any) -> Any:
        return self.elementwise(exponent, a)

    def ldexp(self: Arrays, a: Any, n: Any) -> Any:
        return self.elementwise(ldexp, a, n)
