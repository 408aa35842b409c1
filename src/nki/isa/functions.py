"""The functions of the Scalar engine's activation unit: what they are, what they compute, and where they are valid.

Source: nki/api/nki.api.shared.rst, "Supported Activation Functions for NKI ISA". Hardware approximates them by
piecewise polynomials whose error the documents do not state. Here they are float32 formulas without cancellation,
within seven ulps of the exact value (docs/accuracy.md has the figures), with two exceptions: next to a zero of a
derivative the error is a few ulps of the summands, and the approximations of gelu multiply the rounding error of their
inner argument by its size. Nothing overflows on the way, and nothing is lost in subnormal factors: what has a finite
limit at infinity has it here. NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nki.elementary import (
    DROP,
    arctan,
    decay,
    erf,
    exp,
    lifted_decay,
    lifted_gaussian,
    log,
    log1p_unit,
    scaled_tail,
    sin,
    tanh,
)
from nki.isa import alu
from nki.spec.arrays import Arrays
from nki.spec.operator import Operator

COPY = Operator("copy", activation=True)
EXP = Operator("exp", activation=True)
LOG = Operator("log", activation=True)
SIN = Operator("sin", activation=True)
ARCTAN = Operator("arctan", activation=True)
SQRT = Operator("sqrt", activation=True)
TANH = Operator("tanh", activation=True)
SIGMOID = Operator("sigmoid", activation=True)
GELU = Operator("gelu", activation=True)
GELU_DX = Operator("gelu_dx", activation=True)
GELU_APPRX_TANH = Operator("gelu_apprx_tanh", activation=True)
GELU_APPRX_SIGMOID = Operator("gelu_apprx_sigmoid", activation=True)
GELU_APPRX_SIGMOID_DX = Operator("gelu_apprx_sigmoid_dx", activation=True)
SILU = Operator("silu", activation=True)
SILU_DX = Operator("silu_dx", activation=True)
SOFTPLUS = Operator("softplus", activation=True)
MISH = Operator("mish", activation=True)
ERF = Operator("erf", activation=True)
ERF_DX = Operator("erf_dx", activation=True)
SIGN = Operator("sign", activation=True)
PRELU = Operator("prelu", activation=True)

_PI_HIGH = 3.140625  # exact with few bits, so that x - _PI_HIGH is exact near pi
_PI_LOW = math.pi - _PI_HIGH
_ENOUGH = 128.0  # beyond it exp(-t) is 0, and so is the normal tail
_SIGMOID_FACTOR = 1.702
_TANH_FACTOR = 2 * math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715

_RELATIVE_SLACK = 2.0**-16


def apply(x: Arrays, operator: Operator, a: Any, slope: Any) -> Any:
    """The function of float32 values; `slope` is that of nl.prelu for negative values."""
    if operator.name == COPY.name:
        return a
    if operator.name == PRELU.name:
        return x.select("greater", a, x.constant(0.0), a, x.multiply(a, slope))
    function = _MEANING.get(operator.name)
    return alu.apply(x, operator, a, None) if function is None else x.elementwise(function, a)


def check_domain(x: Arrays, operator: Operator, a: Any) -> None:
    """Warn if the unit gets values outside the range that the documents call valid; results there are undefined.

    0 and NaN are never reported: padding and masked lanes are zero, and what made a NaN had its own warning. A relative
    slack of 2**-16 covers what rounding adds to values that a kernel brought into the range itself.
    """
    if operator.name not in _DOMAINS:
        return
    low, high, magnitude = _DOMAINS[operator.name]
    shown = f"{low:.6g} to {high:.6g}" + (" in magnitude" if magnitude else "")
    x.warn_outside(
        x.absolute(a) if magnitude else a,
        low * (1 - math.copysign(_RELATIVE_SLACK, low)),
        high * (1 + _RELATIVE_SLACK),
        "activation.domain",
        f"nl.{operator} of {{value:.6g}}, but the Scalar engine's function is valid from {shown}",
        "scale or clamp the data first, or use the function of nki.language, which does",
    )


def _dropped(x: Arrays, a: Any) -> Any:
    return x.multiply(a, x.constant(DROP))


def _distance(x: Arrays, a: Any) -> Any:
    """``|a|``, but NaN with its sign: where it meets a again, there must be no choice between two of them."""
    return x.select("less", a, x.constant(0.0), x.negative(a), a)


def _sigmoid(x: Arrays, a: Any) -> Any:
    """``1 / (1 + exp(-a))`` to full relative precision: for negative a, ``exp(a) / (1 + exp(a))``."""
    e = decay(x, x.absolute(a))
    one = x.constant(1.0)
    return x.divide(x.select("less", a, x.constant(0.0), e, one), x.add(e, one))


def _gated(x: Arrays, a: Any, z: Any) -> Any:
    """``a * sigmoid(z)`` for an a with the sign of z."""
    lifted = lifted_decay(x, _distance(x, z))
    small = _dropped(x, x.multiply(x.at_least(a, -_ENOUGH), lifted))
    top = x.select("less", a, x.constant(0.0), small, a)
    return x.divide(top, x.multiply_add(lifted, x.constant(DROP), x.constant(1.0)))


def _bounded(x: Arrays, a: Any) -> Any:
    return x.at_most(x.at_least(a, -_ENOUGH), _ENOUGH)


def _sin(x: Arrays, a: Any) -> Any:
    """Sine within -pi..pi; outside, a cubic: the unit reduces no argument and goes on with its last polynomial.

    nki/api/nki.api.shared.rst says so and gives one value, sin(9.0) ~ 27.65. The cubic that continues the sine at pi,
    -d + d**3 / 6 with d = x - pi (its Taylor polynomial, hence continuous with two derivatives), gives 27.6526.
    """
    magnitude = x.absolute(a)
    beyond = x.subtract(x.subtract(magnitude, x.constant(_PI_HIGH)), x.constant(_PI_LOW))
    sixth = x.multiply(x.multiply(beyond, beyond), x.constant(1 / 6))
    cubic = x.multiply(beyond, x.subtract(sixth, x.constant(1.0)))
    zero = x.constant(0.0)
    cubic = x.select("less", a, zero, x.negative(cubic), cubic)
    return x.select("greater", beyond, zero, cubic, sin(x, a))


def _gelu(x: Arrays, a: Any) -> Any:
    """``a * Phi(a)``; for positive a, ``a - a * Phi(-a)``."""
    t = _distance(x, a)
    lifted = x.multiply(lifted_gaussian(x, t, 0.5), scaled_tail(x, t))
    product = _dropped(x, x.multiply(lifted, _bounded(x, a)))
    return x.select("greater", a, x.constant(0.0), x.subtract(a, product), product)


def _gelu_dx(x: Arrays, a: Any) -> Any:
    """``Phi(a) + a * phi(a)``; for positive a, ``1 - Phi(-a) + a * phi(a)``."""
    t, zero, one = _distance(x, a), x.constant(0.0), x.constant(1.0)
    tail = scaled_tail(x, t)
    tail = x.select("less", a, zero, tail, x.subtract(zero, tail))
    factor = x.multiply_add(_bounded(x, a), x.constant(1 / math.sqrt(2 * math.pi)), tail)
    part = _dropped(x, x.multiply(lifted_gaussian(x, t, 0.5), factor))
    return x.add(part, x.select("less", a, zero, zero, one))


def _gelu_apprx_tanh(x: Arrays, a: Any) -> Any:
    """``a / 2 * (1 + tanh(w / 2))``, which is ``a * sigmoid(w)``, with ``w = sqrt(8 / pi) * (a + 0.044715 * a**3)``."""
    inner = x.multiply_add(x.multiply(a, a), x.constant(_TANH_FACTOR * _TANH_CUBIC), x.constant(_TANH_FACTOR))
    return _gated(x, a, x.multiply(a, inner))


def _gelu_apprx_sigmoid(x: Arrays, a: Any) -> Any:
    """``a * sigmoid(1.702 * a)``."""
    return _gated(x, a, x.multiply(a, x.constant(_SIGMOID_FACTOR)))


def _gated_dx(x: Arrays, z: Any) -> Any:
    """Derivative of ``a * sigmoid(c * a)`` with ``z = c * a``: ``s * (1 + z * (1 - s))``."""
    lifted, zero, one = lifted_decay(x, _distance(x, z)), x.constant(0.0), x.constant(1.0)
    large = x.divide(one, x.multiply_add(lifted, x.constant(DROP), one))
    lifted = x.multiply(lifted, large)
    other = x.select("less", z, zero, large, _dropped(x, lifted))
    factor = x.multiply_add(_bounded(x, z), other, one)
    return x.select("less", z, zero, _dropped(x, x.multiply(lifted, factor)), x.multiply(large, factor))


def _softplus(x: Arrays, a: Any) -> Any:
    """``log(1 + exp(a))``, as ``max(a, 0) + log(1 + exp(-|a|))``."""
    rest = log1p_unit(x, decay(x, x.absolute(a)))
    zero = x.constant(0.0)
    return x.add(x.select("greater", a, zero, a, zero), rest)


def _mish(x: Arrays, a: Any) -> Any:
    """``a * tanh(softplus(a))``, the hyperbolic tangent as a quotient of polynomials in ``e = exp(-|a|)``."""
    lifted, zero, one = lifted_decay(x, _distance(x, a)), x.constant(0.0), x.constant(1.0)
    e = _dropped(x, lifted)
    square, twice, two = x.multiply(e, e), x.add(e, e), x.constant(2.0)
    small = x.multiply(x.multiply(x.at_least(a, -_ENOUGH), lifted), x.add(e, two))
    above = x.add(twice, one)
    top = x.select("less", a, zero, _dropped(x, small), x.multiply(a, above))
    below = x.select("less", a, zero, x.add(x.add(square, twice), two), x.add(x.add(square, square), above))
    return x.divide(top, below)


def _erf_dx(x: Arrays, a: Any) -> Any:
    """``2 / sqrt(pi) * exp(-a * a)``."""
    return _dropped(x, x.multiply(lifted_gaussian(x, x.absolute(a), 1.0), x.constant(2 / math.sqrt(math.pi))))


# By name, which is quicker to look up than the operator.
_MEANING: dict[str, Callable[[Arrays, Any], Any]] = {
    EXP.name: exp,
    LOG.name: log,
    SIN.name: _sin,
    ARCTAN.name: arctan,
    SQRT.name: lambda x, a: x.sqrt(a),
    TANH.name: tanh,
    SIGMOID.name: _sigmoid,
    GELU.name: _gelu,
    GELU_DX.name: _gelu_dx,
    GELU_APPRX_TANH.name: _gelu_apprx_tanh,
    GELU_APPRX_SIGMOID.name: _gelu_apprx_sigmoid,
    GELU_APPRX_SIGMOID_DX.name: lambda x, a: _gated_dx(x, x.multiply(a, x.constant(_SIGMOID_FACTOR))),
    SILU.name: lambda x, a: _gated(x, a, a),
    SILU_DX.name: _gated_dx,
    SOFTPLUS.name: _softplus,
    MISH.name: _mish,
    ERF.name: erf,
    ERF_DX.name: _erf_dx,
    SIGN.name: lambda x, a: x.sign(a),
}

# Valid range, and whether it is one of magnitudes: the column "Valid Input Range" of the table.
_DOMAINS: dict[str, tuple[float, float, bool]] = {
    LOG.name: (2.0**-64, 2.0**64, False),
    SIN.name: (-math.pi, math.pi, False),
    ARCTAN.name: (-math.pi / 2, math.pi / 2, False),
    SQRT.name: (2.0**-116, 2.0**118, False),
    alu.RSQRT.name: (2.0**-87, 2.0**97, False),
    alu.RECIPROCAL.name: (2.0**-42, 2.0**42, True),
}
