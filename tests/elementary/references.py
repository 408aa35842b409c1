"""What the elementary functions and the activation unit are compared with: float64 formulas of scipy and the C library.

They are accurate to some 2**-50 of the result, or of the summands where a scale is given, which is nothing beside the
2**-24 of float32. Errors are counted in ulps of the exact result, or of the smallest normal number if that is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

Function = Callable[[Any], Any]
OVERFLOW = 2.0**128 - 2.0**103
"""Exact results from here on round to infinity."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One function of one variable.

    Attributes:
        exact: in float64.
        bound: of the error in ulps, for normal results.
        low, high: the arguments that count.
        scale: magnitude whose 2**-24 counts as an ulp where it is larger than that of the result.
        subnormal: bound of the error in units of 2**-149, for subnormal results.
    """

    exact: Function
    bound: float
    low: float = -math.inf
    high: float = math.inf
    scale: Function | None = None
    subnormal: float = 1.0


def _logistic_gate(factor: float) -> Function:
    return lambda v: _times(v, scipy.special.expit(factor * v))


def _times(v: Any, gate: Any) -> Any:
    """``v * gate``, which is 0 where the gate is, even for infinite v."""
    return np.where(gate == 0, 0.0, v * gate)


def _sigmoid_gate_scale(v: Any) -> Any:
    """The rounded argument of the gate times what its ulps make of the result."""
    return np.abs(_logistic_gate(1.702)(v)) * (1 + _times(1.702 * np.abs(v), scipy.special.expit(-1.702 * v)))


def _gate_slope(v: Any, factor: float) -> Any:
    z = factor * v
    return scipy.special.expit(z) * (1 + _times(z, scipy.special.expit(-z)))


def _gate_slope_scale(v: Any, factor: float) -> Any:
    """Summands, and an ulp of the inner argument if there is a factor to round."""
    z = np.abs(factor * v)
    inner = 1 if factor == 1 else (1 + z) ** 2
    return scipy.special.expit(factor * v) * np.maximum(inner, 1 + _times(z, scipy.special.expit(-factor * v)))


def _tanh_argument(v: Any) -> Any:
    return math.sqrt(8 / math.pi) * (v + 0.044715 * v**3)


def _tanh_gate(v: Any) -> Any:
    return _times(v, scipy.special.expit(_tanh_argument(v)))


def _tanh_gate_scale(v: Any) -> Any:
    """The rounded argument of the gate times what its ulps make of the result."""
    u = _tanh_argument(v)
    return np.abs(_tanh_gate(v)) * (1 + _times(np.abs(u), scipy.special.expit(-u)))


def _bell(v: Any) -> Any:
    return np.exp(-v * v / 2) / math.sqrt(2 * math.pi)


def _mish(v: Any) -> Any:
    e = np.exp(-np.abs(v))
    above = np.where(v < 0, e * e, 1.0) + 2 * e
    return _times(v, above / (above + np.where(v < 0, 2.0, 2 * e * e)))


ELEMENTARY: dict[str, Reference] = {
    "exp": Reference(np.exp, 1.0),
    "log": Reference(np.log, 1.0),
    "log1p": Reference(np.log1p, 2.0),
    "sin": Reference(np.sin, 2.0, -(2.0**17), 2.0**17),
    "tanh": Reference(np.tanh, 2.0),
    "arctan": Reference(np.arctan, 1.5),
    "erf": Reference(scipy.special.erf, 1.3),
    "decay": Reference(lambda v: np.exp(-v), 1.0, 0.0),
    "log1p_unit": Reference(np.log1p, 2.0, 0.0, 1.0),
    "normal_tail": Reference(lambda v: scipy.special.ndtr(-v), 7.0, 0.0, subnormal=2.0),
}

ACTIVATION: dict[str, Reference] = {
    "copy": Reference(lambda v: v, 0),
    "exp": ELEMENTARY["exp"],
    "log": ELEMENTARY["log"],
    "sin": Reference(np.sin, 2.0, -math.pi, math.pi),
    "arctan": ELEMENTARY["arctan"],
    "sqrt": Reference(np.sqrt, 0.5),
    "rsqrt": Reference(lambda v: 1 / np.sqrt(v), 1.5),
    "reciprocal": Reference(lambda v: 1 / v, 0.5),
    "tanh": ELEMENTARY["tanh"],
    "sigmoid": Reference(scipy.special.expit, 3.0),
    "gelu": Reference(lambda v: _times(v, scipy.special.ndtr(v)), 6.5, subnormal=3.0),
    "gelu_dx": Reference(
        lambda v: scipy.special.ndtr(v) + _times(v, _bell(v)),
        7.0,
        scale=lambda v: scipy.special.ndtr(v) + _times(np.abs(v), _bell(v)),
        subnormal=2.0,
    ),
    "gelu_apprx_tanh": Reference(_tanh_gate, 3.5, scale=_tanh_gate_scale, subnormal=3.0),
    "gelu_apprx_sigmoid": Reference(
        _logistic_gate(1.702),
        3.0,
        scale=lambda v: (
            np.abs(_logistic_gate(1.702)(v)) * (1 + _times(1.702 * np.abs(v), scipy.special.expit(-1.702 * v)))
        ),
        subnormal=2.0,
    ),
    "gelu_apprx_sigmoid_dx": Reference(
        lambda v: _gate_slope(v, 1.702), 3.5, scale=lambda v: _gate_slope_scale(v, 1.702), subnormal=2.0
    ),
    "silu": Reference(_logistic_gate(1.0), 3.5, subnormal=2.0),
    "silu_dx": Reference(lambda v: _gate_slope(v, 1.0), 5.0, scale=lambda v: _gate_slope_scale(v, 1.0), subnormal=2.0),
    "softplus": Reference(lambda v: np.logaddexp(0, v), 3.0, subnormal=2.0),
    "mish": Reference(_mish, 5.0, subnormal=2.0),
    "erf": ELEMENTARY["erf"],
    "erf_dx": Reference(lambda v: 2 / math.sqrt(math.pi) * np.exp(-v * v), 3.0, subnormal=2.0),
    "sign": Reference(np.sign, 0),
    "abs": Reference(np.abs, 0),
    "square": Reference(np.square, 0.5),
    "relu": Reference(lambda v: np.maximum(v, 0), 0),
    "prelu": Reference(lambda v: np.where(v > 0, v, v * 0.25), 0.5),
}
"""By the name of the operator; nl.prelu has a slope of 0.25."""


def ulp(exact: Any) -> Any:
    """The distance of float32 numbers at a float64."""
    exponent = np.frexp(np.where(np.isfinite(exact), exact, 1.0))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, -126) - 23)


def sweep(points: int, low: float = -math.inf, high: float = math.inf) -> Iterator[np.ndarray]:
    """float32 numbers of all exponents and both signs within bounds: `points` mantissas each, a power of 2 up to 2**23.

    Around 1, from 2**-12 to 2**8, there are eight times as many, since results change there.
    """
    for sign in (0, 1):
        for field in range(256):
            count = min(points * 8 if 115 <= field <= 134 else points, 1 << 23)
            step = (1 << 23) // count
            shift = (field * 2654435761 + sign) % step
            bits = np.arange(count, dtype=np.uint32) * np.uint32(step) + np.uint32(shift)
            numbers = (bits | np.uint32(sign << 31 | field << 23)).view(np.float32)
            numbers = numbers[(numbers >= np.float32(low)) & (numbers <= np.float32(high))]
            if numbers.size:
                yield numbers


@dataclass(slots=True)
class Worst:
    """The largest errors so far.

    Attributes:
        ulps, at: of normal results, and the argument.
        subnormal: of subnormal results, in units of 2**-149.
        wrong: results that are NaN or infinite and should not be, or the other way round.
        count: of arguments.
    """

    ulps: float = 0.0
    at: float = 0.0
    subnormal: float = 0.0
    wrong: int = 0
    count: int = 0

    def add(self, reference: Reference, numbers: np.ndarray, got: np.ndarray) -> None:
        """Results for these numbers."""
        exact = np.asarray(reference.exact(numbers.astype(np.float64)), np.float64)
        overflow = np.abs(exact) >= OVERFLOW
        finite = ~overflow & ~np.isnan(exact)
        wrong = (np.isnan(got) != np.isnan(exact)) | (np.isinf(got) != overflow)
        wrong |= overflow & (np.signbit(got) != np.signbit(exact))
        self.wrong += int(wrong.sum())
        self.count += numbers.size
        unit = ulp(exact)
        if reference.scale is not None:
            scale = np.where(finite, reference.scale(numbers.astype(np.float64)), 0.0)
            unit = np.fmax(unit, scale * 2.0**-24)
        error = np.where(finite & np.isfinite(got), np.abs(got.astype(np.float64) - exact) / unit, 0.0)
        small = np.abs(exact) < 2.0**-126
        self.subnormal = max(self.subnormal, float(np.max(error, where=small, initial=0.0)))
        error[small] = 0.0
        index = int(error.argmax())
        if error[index] > self.ulps:
            self.ulps, self.at = float(error[index]), float(numbers[index])


def worst(reference: Reference, function: Function, numbers: Iterator[np.ndarray]) -> Worst:
    """The errors of a float32 function."""
    result = Worst()
    with np.errstate(all="ignore"):
        for part in numbers:
            result.add(reference, part, np.asarray(function(part)))
    return result
