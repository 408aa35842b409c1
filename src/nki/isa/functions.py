"""The functions of the Scalar engine's activation unit: what they are, what they compute, and where they are valid.

Source: nki/api/nki.api.shared.rst, "Supported Activation Functions for NKI ISA". Hardware approximates them by
piecewise polynomials whose error the documents do not state. Here they are float32 formulas without cancellation,
within ten ulps of the exact value, with three exceptions: next to a zero of a derivative the error is a few ulps of the
summands; the approximations of gelu multiply the rounding error of their inner argument by its size; and where silu,
mish, the approximations of gelu and the derivatives are below 2**-126, what a subnormal exponential has lost is
multiplied by their argument, an error of about 7e-44. Nothing overflows on the way: what has a finite limit at infinity
has it here. NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nki.core.erf_coefficients import TAIL
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
_SPLIT = 4097.0  # 2**12 + 1: halves the bits of a float32
_ENOUGH = 128.0  # beyond it exp(-t) is 0, and so is the normal tail
_SIGMOID_FACTOR = 1.702
_TANH_FACTOR = 2 * math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715

_RELATIVE_SLACK = 2.0**-16


def apply(x: Arrays, operator: Operator, a: Any, slope: Any) -> Any:
    """The function of float32 values; `slope` is that of nl.prelu for negative values."""
    if operator.name == PRELU.name:
        return x.where(x.compare("greater", a, x.constant(0.0)), a, x.multiply(a, slope))
    function = _MEANING.get(operator.name)
    return alu.apply(x, operator, a, None) if function is None else function(x, a)


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


def normal_tail(x: Arrays, t: Any) -> Any:
    """``Phi(-t)``, the probability that a normal variable lies beyond t >= 0, within 7 ulps."""
    return x.multiply(_minus_square_exp(x, t, 0.5), _scaled_tail(x, t))


def _scaled_tail(x: Arrays, t: Any) -> Any:
    """``exp(t * t / 2) * Phi(-t)``: the polynomial of scripts/fit_erf.py, by Horner's rule."""
    t = x.minimum(t, x.constant(_ENOUGH))
    q = x.divide(x.subtract(t, x.constant(4.0)), x.add(t, x.constant(4.0)))
    result = x.add(x.multiply(q, x.constant(TAIL[-1])), x.constant(TAIL[-2]))
    for coefficient in reversed(TAIL[:-2]):
        result = x.add(x.multiply(result, q), x.constant(coefficient))
    return x.divide(result, x.add(t, x.constant(1.0)))


def _minus_square_exp(x: Arrays, t: Any, factor: float) -> Any:
    """``exp(-factor * t * t)`` for t >= 0 and a factor that is a power of 2.

    t splits into a head whose square is exact and a rest, because the error of a rounded square would be multiplied by
    the square itself.
    """
    t = x.minimum(t, x.constant(_ENOUGH))
    wide = x.multiply(t, x.constant(_SPLIT))
    head = x.subtract(wide, x.subtract(wide, t))
    rest = x.multiply(x.subtract(t, head), x.add(t, head))
    scale = x.constant(-factor)
    return x.multiply(x.exp(x.multiply(x.multiply(head, head), scale)), x.exp(x.multiply(rest, scale)))


def _sigmoids(x: Arrays, a: Any) -> tuple[Any, Any]:
    """``1 / (1 + exp(-a))`` and ``1 / (1 + exp(a))``, both to full relative precision."""
    e = x.exp(x.negative(x.absolute(a)))
    total = x.add(e, x.constant(1.0))
    large, small = x.divide(x.constant(1.0), total), x.divide(e, total)
    positive = x.compare("greater_equal", a, x.constant(0.0))
    return x.where(positive, large, small), x.where(positive, small, large)


def _gated(x: Arrays, a: Any, gate: Any) -> Any:
    """``a * gate`` where the gate is 0 for large negative values, down to -inf."""
    return x.multiply(x.maximum(a, x.constant(-_ENOUGH)), gate)


def _bounded(x: Arrays, a: Any) -> Any:
    return x.minimum(x.maximum(a, x.constant(-_ENOUGH)), x.constant(_ENOUGH))


def _sin(x: Arrays, a: Any) -> Any:
    """Sine within -pi..pi; outside, a cubic: the unit reduces no argument and goes on with its last polynomial.

    nki/api/nki.api.shared.rst says so and gives one value, sin(9.0) ~ 27.65. The cubic that continues the sine at pi,
    -d + d**3 / 6 with d = x - pi (its Taylor polynomial, hence continuous with two derivatives), gives 27.6526.
    """
    magnitude = x.absolute(a)
    beyond = x.subtract(x.subtract(magnitude, x.constant(_PI_HIGH)), x.constant(_PI_LOW))
    sixth = x.multiply(x.multiply(beyond, beyond), x.constant(1 / 6))
    cubic = x.multiply(beyond, x.subtract(sixth, x.constant(1.0)))
    cubic = x.where(x.compare("less", a, x.constant(0.0)), x.negative(cubic), cubic)
    return x.where(x.compare("greater", beyond, x.constant(0.0)), cubic, x.sin(a))


def _cumulative(x: Arrays, a: Any) -> Any:
    """``Phi(a)``, the normal distribution."""
    tail = normal_tail(x, x.absolute(a))
    return x.where(x.compare("less", a, x.constant(0.0)), tail, x.subtract(x.constant(1.0), tail))


def _gelu_dx(x: Arrays, a: Any) -> Any:
    """``Phi(a) + a * phi(a)``."""
    density = x.multiply(_minus_square_exp(x, x.absolute(a), 0.5), x.constant(1 / math.sqrt(2 * math.pi)))
    return x.add(_cumulative(x, a), x.multiply(_bounded(x, a), density))


def _gelu_apprx_tanh(x: Arrays, a: Any) -> Any:
    """``a / 2 * (1 + tanh(w / 2))``, which is ``a * sigmoid(w)``, with ``w = sqrt(8 / pi) * (a + 0.044715 * a**3)``."""
    inner = x.add(x.multiply(x.multiply(a, a), x.constant(_TANH_FACTOR * _TANH_CUBIC)), x.constant(_TANH_FACTOR))
    return _gated(x, a, _sigmoids(x, x.multiply(a, inner))[0])


def _gelu_apprx_sigmoid(x: Arrays, a: Any) -> Any:
    """``a * sigmoid(1.702 * a)``."""
    return _gated(x, a, _sigmoids(x, x.multiply(a, x.constant(_SIGMOID_FACTOR)))[0])


def _gated_dx(x: Arrays, z: Any) -> Any:
    """Derivative of ``a * sigmoid(c * a)`` with ``z = c * a``: ``s * (1 + z * (1 - s))``."""
    chosen, other = _sigmoids(x, z)
    return x.multiply(chosen, x.add(x.multiply(_bounded(x, z), other), x.constant(1.0)))


def _softplus(x: Arrays, a: Any) -> Any:
    """``log(1 + exp(a))``, as ``max(a, 0) + log(1 + exp(-|a|))``."""
    rest = x.log1p(x.exp(x.negative(x.absolute(a))))
    return x.add(x.maximum(a, x.constant(0.0)), rest)


def _mish(x: Arrays, a: Any) -> Any:
    """``a * tanh(softplus(a))``, the hyperbolic tangent as a quotient of polynomials in ``e = exp(-|a|)``."""
    e = x.exp(x.negative(x.absolute(a)))
    one, two = x.constant(1.0), x.constant(2.0)
    positive = x.compare("greater_equal", a, x.constant(0.0))
    twice = x.multiply(e, two)
    square = x.multiply(e, e)
    above = x.where(positive, x.add(one, twice), x.add(square, twice))
    below = x.where(positive, x.add(above, x.multiply(square, two)), x.add(above, two))
    return _gated(x, a, x.divide(above, below))


def _erf_dx(x: Arrays, a: Any) -> Any:
    """``2 / sqrt(pi) * exp(-a * a)``."""
    return x.multiply(_minus_square_exp(x, x.absolute(a), 1.0), x.constant(2 / math.sqrt(math.pi)))


# By name, which is quicker to look up than the operator.
_MEANING: dict[str, Callable[[Arrays, Any], Any]] = {
    COPY.name: lambda x, a: a,
    EXP.name: lambda x, a: x.exp(a),
    LOG.name: lambda x, a: x.log(a),
    SIN.name: _sin,
    ARCTAN.name: lambda x, a: x.arctan(a),
    SQRT.name: lambda x, a: x.sqrt(a),
    TANH.name: lambda x, a: x.tanh(a),
    SIGMOID.name: lambda x, a: _sigmoids(x, a)[0],
    GELU.name: lambda x, a: _gated(x, a, _cumulative(x, a)),
    GELU_DX.name: _gelu_dx,
    GELU_APPRX_TANH.name: _gelu_apprx_tanh,
    GELU_APPRX_SIGMOID.name: _gelu_apprx_sigmoid,
    GELU_APPRX_SIGMOID_DX.name: lambda x, a: _gated_dx(x, x.multiply(a, x.constant(_SIGMOID_FACTOR))),
    SILU.name: lambda x, a: _gated(x, a, _sigmoids(x, a)[0]),
    SILU_DX.name: _gated_dx,
    SOFTPLUS.name: _softplus,
    MISH.name: _mish,
    ERF.name: lambda x, a: x.erf(a),
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
