"""ATen's gamma functions, in float32: logarithm of gamma, and its derivatives.

M. Abramowitz and I. Stegun, Handbook of mathematical functions, chapter 6, has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nki.core.dtypes import float32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, converts, wide
from nki.graph.ir import Value

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
"""B2, B4, ..., B10."""

_SHIFT = 8
"""Series for large arguments begin after so many steps of the recurrence."""


def _zeta_above_one(order: int) -> float:
    """Riemann's zeta function less its first term, by Euler's and Maclaurin's formula."""
    first = 20
    tail = first ** (1 - order) / (order - 1) + first**-order / 2 + order * first ** (-order - 1) / 12
    return sum(n**-order for n in range(2, first)) + tail


_AROUND_TWO = (0.0, 1 - np.euler_gamma, *((-1) ** k * _zeta_above_one(k) / k for k in range(2, 16)))
"""Taylor's series of the logarithm of gamma around 2."""


def polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """By Horner's rule, the constant coefficient first."""
    made = b.constant(coefficients[-1], x.type.dtype, x.type.shape)
    for coefficient in coefficients[-2::-1]:
        made = b.add(b.multiply(made, x), coefficient)
    return made


def _between(b: Builder, x: Value, choices: Sequence[tuple[float, Value | float]], last: Value) -> Value:
    """The first choice whose bound `x` lies below."""
    for bound, choice in reversed(choices):
        last = b.select(b.compare("LT", x, bound), choice, last)
    return last


def _turn(b: Builder, x: Value) -> Value:
    """How far it is to the nearest integer, which sine and tangent of pi times the number depend on."""
    return b.subtract(x, b.unary("round_nearest_even", x))


def log_gamma(b: Builder, z: Value) -> Value:
    """log(gamma(z)) for z > 0: Taylor's series around 2 in [0.5, 3.5) by the recurrence, Stirling's series beyond."""
    logarithm = b.unary("log", z)
    inverse = b.divide(1.0, z)
    series = [number / (2 * k * (2 * k - 1)) for k, number in enumerate(_BERNOULLI, 1)]
    rest = b.multiply(inverse, polynomial(b, b.multiply(inverse, inverse), series))
    stirling = b.multiply(b.subtract(z, 0.5), b.subtract(logarithm, 1.0))
    beyond = b.add(stirling, b.add(rest, 0.5 * math.log(2 * math.pi) - 0.5))
    steps = _between(b, z, ((0.5, 0.0), (1.5, 1.0), (2.5, 2.0)), b.constant(3.0, float32, z.type.shape))
    near = polynomial(b, b.subtract(z, steps), _AROUND_TWO)
    above = b.unary("log", b.subtract(z, 1.0))
    below = b.unary("negate", b.unary("log", b.multiply(z, b.add(z, 1.0))))
    moved = _between(b, z, ((0.5, below), (1.5, b.unary("negate", logarithm)), (2.5, 0.0)), above)
    return b.select(b.compare("LT", z, 3.5), b.add(near, moved), beyond)


@converts("lgamma")
def _lgamma(b: Builder, call: Call, x: Value) -> Value:
    data = wide(b, b.convert(x, call.dtype))
    size = b.unary("abs", data)
    found = log_gamma(b, size)
    sine = b.unary("abs", b.unary("sine", b.multiply(_turn(b, size), math.pi)))
    logarithms = b.add(b.unary("log", size), b.unary("log", sine))
    mirrored = b.subtract(b.subtract(math.log(math.pi), logarithms), found)
    chosen = b.select(b.compare("LT", data, 0.0), mirrored, found)
    return b.convert(b.select(b.compare("EQ", size, np.inf), np.inf, chosen), call.dtype)


def _digamma_above(b: Builder, z: Value) -> Value:
    """The digamma function of positive numbers."""
    low = b.compare("LT", z, float(_SHIFT))
    steps = [b.divide(1.0, b.add(z, float(k))) for k in range(_SHIFT)]
    total = steps[-1]
    for step in steps[-2::-1]:
        total = b.add(total, step)
    moved = b.select(low, b.add(z, float(_SHIFT)), z)
    inverse = b.divide(1.0, moved)
    square = b.multiply(inverse, inverse)
    series = polynomial(b, square, [number / (2 * k) for k, number in enumerate(_BERNOULLI, 1)])
    beyond = b.subtract(b.unary("log", moved), b.add(b.multiply(inverse, 0.5), b.multiply(square, series)))
    return b.subtract(beyond, b.select(low, total, 0.0))


def digamma(b: Builder, x: Value) -> Value:
    """The digamma function of float32: an infinity of the other sign at zeros, NaN at negative integers."""
    size = b.unary("abs", x)
    found = _digamma_above(b, size)
    turn = b.multiply(_turn(b, size), math.pi)
    cotangent = b.divide(b.unary("cosine", turn), b.unary("sine", turn))
    mirrored = b.add(b.add(found, b.divide(1.0, size)), b.multiply(cotangent, math.pi))
    pole = b.compare("EQ", turn, 0.0)
    chosen = b.select(b.compare("LT", x, 0.0), b.select(pole, np.nan, mirrored), found)
    return b.select(b.compare("EQ", x, 0.0), b.unary("negate", b.divide(1.0, x)), chosen)


@converts("digamma")
def _digamma(b: Builder, call: Call, x: Value) -> Value:
    return b.convert(digamma(b, wide(b, b.convert(x, call.dtype))), call.dtype)


def hurwitz(b: Builder, order: int, x: Value) -> Value:
    """The sum of ``(x + k)**-order`` over all k from 0, for positive numbers, by Euler's and Maclaurin's formula."""

    def power(base: Value, exponent: int) -> Value:
        return b.binary("power", base, b.constant(float(exponent), float32))

    end = b.add(x, float(_SHIFT))
    total = b.add(b.multiply(power(end, 1 - order), 1 / (order - 1)), b.multiply(power(end, -order), 0.5))
    factor = float(order)
    for k, number in enumerate(_BERNOULLI[:4], 1):
        term = number / math.factorial(2 * k) * factor
        total = b.add(total, b.multiply(power(end, 1 - order - 2 * k), term))
        factor *= (order + 2 * k - 1) * (order + 2 * k)
    for k in reversed(range(_SHIFT)):
        total = b.add(total, power(b.add(x, float(k)), -order))
    return total


def _cotangents(order: int) -> list[float]:
    """Coefficients in powers of the cotangent of its derivative of an order."""
    made = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(order):
        made = made.deriv() * np.polynomial.Polynomial([-1.0, 0.0, -1.0])
    return [float(number) for number in made.coef]


@converts("polygamma")
def _polygamma(b: Builder, call: Call, order: int, x: Value) -> Value:
    data = wide(b, b.convert(x, call.dtype))
    if order == 0:
        return b.convert(digamma(b, data), call.dtype)
    sign, factor = (-1.0) ** (order + 1), float(math.factorial(order))
    below = b.compare("LT", data, 0.0)
    positive = b.select(below, b.subtract(1.0, data), data)
    found = b.multiply(hurwitz(b, order + 1, positive), sign * factor)
    turn = b.multiply(_turn(b, data), math.pi)
    cotangent = b.divide(b.unary("cosine", turn), b.unary("sine", turn))
    change = b.multiply(polynomial(b, cotangent, _cotangents(order)), math.pi ** (order + 1))
    mirrored = b.subtract(b.multiply(found, (-1.0) ** order), change)
    pole = b.binary("and", b.compare("EQ", turn, 0.0), b.compare("LE", data, 0.0))
    chosen = b.select(pole, sign * np.inf, b.select(below, mirrored, found))
    return b.convert(chosen, call.dtype)
