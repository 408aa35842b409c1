"""References of activation functions: SciPy and NumPy in float64, with the largest error that each may have.

The bound is in units of the last place of the exact value. Where a function is a sum, or its inner argument is rounded,
the unit is that of the summands, and an inner error of one ulp may move the result by the function's slope. A factor
``exp(-w)`` that is subnormal has an error of one unit of 2**-149, which its cofactor multiplies. The numbers are those
that `nki.isa.functions` promises: at most ten, no overflow on the way, limits at infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from nki.spec.engine import reduce_cmd
from tests.isa.properties.cases import State
from tests.isa.properties.compare import Expected, Near, exactly, ulp, within
from tests.isa.properties.formats import F64, f32
from tests.isa.properties.places import Tile
from tests.isa.properties.references_alu import alu
from tests.isa.properties.references_elementwise import spread, value
from tests.isa.properties.references_reduce import held, obey, with_registers

Results = dict[str, Expected]
_EPS = 2.0**-24
_CONDITION = 8 * _EPS

_ALU = ("abs", "square", "relu", "rsqrt", "reciprocal")
EXACT = ("copy", "sign", "prelu", "sqrt", "abs", "square", "relu", "reciprocal")
"""Functions with one correctly rounded result, so that reductions of them are known."""

_ULPS: dict[str, tuple[Callable[[F64], F64], float]] = {
    "exp": (np.exp, 3),
    "log": (np.log, 3.5),
    "arctan": (np.arctan, 3),
    "tanh": (np.tanh, 4),
    "sigmoid": (special.expit, 4),
    "softplus": (lambda v: np.logaddexp(0, v), 5),
    "erf": (special.erf, 1.3),
    "erf_dx": (lambda v: 2 / math.sqrt(math.pi) * np.exp(-v * v), 6),
}
_SMALLEST = 2.0**-149

_DOMAINS = {
    "log": (2.0**-64, 2.0**64),
    "sin": (-math.pi, math.pi),
    "arctan": (-math.pi / 2, math.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}
"""nki/api/nki.api.shared.rst, "Valid Input Range"; that of reciprocal is one of magnitudes."""


def _density(v: F64) -> F64:
    return np.exp(-v * v / 2) / math.sqrt(2 * math.pi)


def _tail(w: F64) -> F64:
    """What a subnormal ``exp(w)`` loses, times a cofactor of the size of w."""
    return np.where(w < -80, np.minimum(abs(w), 128) * _SMALLEST, 0.0)


def _gated(v: F64, w: F64) -> Near:
    """``v * sigmoid(w)`` with a rounded w."""
    exact = v * special.expit(w)
    bound = _CONDITION * abs(exact) * (1 + abs(w) * special.expit(-w))
    return within(exact, np.maximum(bound, 10 * _SMALLEST) + _tail(w))


def _derivative(w: F64, inner: bool) -> Near:
    """``s + w * s * (1 - s)`` with ``s = sigmoid(w)``; `inner`: w is rounded."""
    s, rest = special.expit(w), special.expit(-w)
    summands = s * (1 + abs(w) * rest)
    moved = abs(w) * s * rest * (2 + abs(w)) if inner else 0.0
    return within(s * (1 + w * rest), np.maximum(_CONDITION * (summands + moved), 10 * _SMALLEST) + _tail(w))


def _conditioned(name: str, v: F64) -> Near:
    """Products with what vanishes, sums, and functions of a rounded inner argument."""
    far, above = np.clip(v, -1000.0, 1000.0), np.maximum(v, -1000.0)
    match name:
        case "gelu":
            exact = above * special.ndtr(above)
            return within(exact, 10 * ulp(exact))
        case "silu":
            exact = above * special.expit(above)
            return within(exact, 5 * ulp(exact) + _tail(far))
        case "mish":
            exact = above * np.tanh(np.logaddexp(0, above))
            return within(exact, 8 * ulp(exact) + _tail(far))
        case "gelu_dx":
            near = np.clip(v, -50.0, 50.0)
            bound = _CONDITION * (special.ndtr(near) + abs(near) * _density(near))
            lost = np.where(near < -13, abs(near) * _SMALLEST, 0.0)  # the density is subnormal
            return within(special.ndtr(near) + near * _density(near), np.maximum(bound, 10 * _SMALLEST) + lost)
        case "silu_dx":
            return _derivative(far, False)
        case "gelu_apprx_sigmoid_dx":
            return _derivative(1.702 * far, True)
        case "gelu_apprx_sigmoid":
            return _gated(above, 1.702 * far)
        case "gelu_apprx_tanh":
            return _gated(above, math.sqrt(8 / math.pi) * (far + 0.044715 * far**3))
        case "sin":
            return _sin(v)
    raise KeyError(f"no reference for nl.{name}")


def _sin(v: F64) -> Near:
    """Beyond pi the cubic that continues it; its argument is the distance to pi, rounded to about 2**-34."""
    away = abs(v) - math.pi
    inside = ~(away > 0)
    exact = np.where(inside, np.sin(np.where(inside, v, 0.0)), np.sign(v) * away * (away * away / 6 - 1))
    summands = 6 * _EPS * np.maximum(abs(away), abs(away) ** 3 / 6) + 2.0**-33
    return within(exact, np.where(inside, 3 * ulp(exact), summands))


@np.errstate(all="ignore")
def function(name: str, v: F64, slope: Any = 0.0) -> Near:
    """An activation function of float32 values."""
    if name == "copy":
        return exactly(v)
    if name == "sign":
        return exactly(np.where(np.isnan(v), np.nan, (v > 0) * 1.0 - (v < 0) * 1.0), signed=False)
    if name == "prelu":
        return exactly(np.where(v > 0, v, f32(v * slope)), signed=False)
    if name == "sqrt":
        return exactly(np.sqrt(v))
    if name in _ALU:
        return Near(alu(name, v, 0.0))
    if name not in _ULPS:
        return _conditioned(name, v)
    exact, bound = _ULPS[name]
    return within(exact(v), bound * ulp(exact(v)))


def report_domain(state: State, name: str, v: F64) -> None:
    """Values outside the valid range are reported; 0 and NaN are not, and next to the borders either is right."""
    if name not in _DOMAINS:
        return
    low, high = _DOMAINS[name]
    v = (abs(v) if name == "reciprocal" else v)[(v != 0) & ~np.isnan(v)]
    slack = 2.0**-15
    if ((v < low - abs(low) * slack) | (v > high * (1 + slack))).any():
        state.warned.add("activation.domain")
    elif ((v < low) | (v > high)).any():
        state.may_warn.add("activation.domain")


# ---- instructions


def _values(a: Any, state: State, expected: Near) -> F64:
    """What is reduced: known values, or those that were written to a float32 destination."""
    return expected.candidates[0] if a.op.name in EXACT else state.got["dst"]


def _scaled(a: Any, state: State) -> tuple[F64, Near]:
    v = a.data.f32
    if isinstance(a.scale, Tile) or a.scale is not None:
        v = alu("multiply", v, value(a.scale))[0]
    if a.bias is not None:
        v = alu("add", v, value(a.bias))[0]
    report_domain(state, a.op.name, v)
    if a.op.name == "prelu":
        state.warned.add(f"{a.instruction}.prelu-slope")
    return v, function(a.op.name, v)


def activation(a: Any, state: State) -> Results:
    """Scale, bias, function; the sum of the results goes to the registers of Scalar."""
    a.instruction = "activation"
    _, expected = _scaled(a, state)
    if a.op.name == "copy" and state.target == "trn1" and (isinstance(a.bias, Tile) or a.bias):
        state.warned.add("activation.copy-bias")
    if a.reduce_cmd is not None:
        obey(state, a.reduce_cmd, "add", _values(a, state, expected), None, keeps=True)
    return with_registers(a, state, {"dst": spread_near(expected, a.dst)}, a.data.partitions)


def activation_reduce(a: Any, state: State) -> Results:
    """The same with a sum that starts anew."""
    a.instruction = "activation_reduce"
    _, expected = _scaled(a, state)
    state.registers = None
    obey(state, reduce_cmd.reset_reduce, "add", _values(a, state, expected), None)
    return with_registers(a, state, {"dst": spread_near(expected, a.dst)}, a.data.partitions)


def activate2(a: Any, state: State) -> Results:
    """Two stages that may be bypassed or reversed, and five reductions."""
    v = a.data.f32
    for op, operand, reverse in ((a.op0, a.imm0, a.reverse0), (a.op1, a.imm1, a.reverse1)):
        if op.name != "bypass":
            v = alu(op.name, v, value(operand), bool(reverse))[0]
    report_domain(state, a.op.name, v)
    expected = function(a.op.name, v, value(a.relu_param))
    if a.reduce_cmd is not None:
        name = "add" if a.reduce_op is None else a.reduce_op.name
        obey(state, a.reduce_cmd, name, _values(a, state, expected), None, keeps=True)
    return with_registers(a, state, {"dst": spread_near(expected, a.dst)}, a.data.partitions)


def exponential(a: Any, state: State) -> Results:
    """exp of a difference on Vector, whose registers are lost with idle."""
    expected = function("exp", alu("subtract", a.src.f32, value(a.max_value))[0])
    command = reduce_cmd.idle if a.reduce_cmd is None else a.reduce_cmd
    obey(state, command, "add", state.got["dst"], a.reduce_init)
    results: Results = {"dst": spread_near(expected, a.dst)}
    if a.reduce_res is not None:
        results["reduce_res"] = exactly(held(state, a.src.partitions), signed=False)
    return results


def spread_near(expected: Near, tile: Tile) -> Near:
    """Candidates as those of a whole destination, with the same rule for zeros."""
    return Near(spread(expected.candidates, tile).candidates, expected.signed)
