"""Comparing what a candidate computed with the reference: what is judged, and how far it may be away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from nki.core.dtypes import DType, from_numpy
from nki.tools.compare.measure import Doubles, doubles, plain, tolerance_for
from nki.tools.compare.rows import shape_text, without_ones

_COARSEST = 2.0**-8
"""Unit roundoff of bfloat16: kernels keep what lies between arguments and results in no narrower format."""
_ROUNDINGS = 4.0
TRIALS = 3
"""How often the reference runs on inputs that are rounded differently."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Row:
    """One result, on one set of arguments, for one kind of inputs.

    Attributes:
        judged: elements for which the reference has an answer, of `elements`.
        beyond: how many of them are further away than allowed.
        worst: the element that exceeds what is allowed most; None if nothing is judged.
        found, expected, allowed: its values, and how far apart they may be.
        error: how far apart they are; infinite where only one of both is a number.
        rtol, atol: what the dtype explains; `allowed` has what inputs explain as well.
        problem: why nothing can be compared; empty if it can.
    """

    name: str
    elements: int
    judged: int
    beyond: int
    max_abs: float
    worst: tuple[int, ...] | None = None
    found: float = 0.0
    expected: float = 0.0
    allowed: float = 0.0
    error: float = 0.0
    rtol: float = 0.0
    atol: float = 0.0
    problem: str = ""

    @property
    def passed(self) -> bool:
        return self.beyond == 0 and not self.problem

    @property
    def verdict(self) -> str:
        """For the table."""
        if self.problem:
            return self.problem
        return "equal" if self.max_abs == 0 else "within tolerance" if self.passed else "WRONG"

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        figures = {name: plain(getattr(self, name)) for name in ("max_abs", "found", "expected", "error", "allowed")}
        return {
            "name": self.name,
            "passed": self.passed,
            "verdict": self.verdict,
            "elements": self.elements,
            "judged": self.judged,
            "beyond": self.beyond,
            "index": None if self.worst is None else list(self.worst),
            **figures,
            "rtol": self.rtol,
            "atol": self.atol,
        }


def perturbed(arrays: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Floats, as float64, each changed by one rounding of their dtype up or down; everything else as it is."""
    generator = np.random.default_rng(seed)
    made = {}
    for name, array in arrays.items():
        dtype = from_numpy(array.dtype)
        if dtype.is_float and not dtype.is_packed:
            rounding = min(float(ml_dtypes.finfo(dtype.numpy).eps) / 2.0, _COARSEST)
            signs = generator.choice([-1.0, 1.0], array.shape)
            made[name] = array.astype(np.float64) * (1.0 + rounding * signs)
        else:
            made[name] = array
    return made


def compare(
    name: str,
    found: np.ndarray,
    expected: np.ndarray,
    others: Sequence[np.ndarray],
    nan_given: bool,
    rtol: float | None,
    atol: float | None,
) -> Row:
    """Judge one result.

    An element passes if it is at most ``atol + rtol * |expected| + 4 * spread`` away, where `spread` is how far the
    results of the reference on `others`, inputs that were rounded differently, are from `expected`. With `rtol` or
    `atol` given, the spread does not count.

    Args:
        nan_given: whether some input is NaN. If none is, nothing is asked where the reference has NaN.
    """
    dtype = from_numpy(found.dtype)
    left, right = doubles(found), doubles(expected)
    if without_ones(left.shape) != without_ones(right.shape):
        problem = f"shape {shape_text(left.shape)} instead of {shape_text(right.shape)}"
        return Row(name, left.size, 0, 0, 0.0, problem=problem)
    right = right.reshape(left.shape)
    tolerance = tolerance_for(right, dtype, rtol, atol)
    with np.errstate(all="ignore"):
        allowed = tolerance.atol + tolerance.rtol * np.where(np.isfinite(right), np.abs(right), 0.0)
        if dtype.is_float and not dtype.is_packed and rtol is None and atol is None:
            allowed = allowed + float(ml_dtypes.finfo(dtype.numpy).smallest_normal)
            allowed = allowed + _ROUNDINGS * _spread(right, others)
        judged = np.ones(right.shape, bool) if nan_given else ~np.isnan(right)
        error = np.where(judged, _error(left, right, dtype), 0.0)
        return _row(name, left, right, error, allowed, judged, (tolerance.rtol, tolerance.atol))


def _row(
    name: str,
    found: Doubles,
    expected: Doubles,
    error: Doubles,
    allowed: Doubles,
    judged: Mask,
    tolerance: tuple[float, float],
) -> Row:
    excess = np.where(judged, error - allowed, -np.inf)
    if not judged.any():
        return Row(name, judged.size, 0, 0, 0.0)
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    return Row(
        name=name,
        elements=judged.size,
        judged=int(judged.sum()),
        beyond=int((excess > 0).sum()),
        max_abs=float(error.max()),
        worst=tuple(int(at) for at in worst),
        found=float(found[worst]),
        expected=float(expected[worst]),
        allowed=float(allowed[worst]),
        error=float(error[worst]),
        rtol=tolerance[0],
        atol=tolerance[1],
    )


def _error(found: Doubles, expected: Doubles, dtype: DType) -> Doubles:
    """Distances; infinite where only one of both is a number, or where infinities differ."""
    same = (found == expected) | (np.isnan(found) & np.isnan(expected)) | _overflows(found, expected, dtype)
    error = np.where(same, 0.0, np.abs(found - expected))
    return np.where(np.isnan(error), np.inf, error)


def _overflows(found: Doubles, expected: Doubles, dtype: DType) -> Mask:
    """Where the dtype cannot hold the number: its largest number stands for it as well as infinity."""
    if not dtype.is_float or dtype.is_packed:
        return np.zeros(found.shape, bool)
    most = float(ml_dtypes.finfo(dtype.numpy).max)
    limit = most * (1.0 - float(ml_dtypes.finfo(dtype.numpy).eps))
    return (np.abs(expected) >= limit) & (np.abs(found) >= limit) & (np.sign(found) == np.sign(expected))


def _spread(expected: Doubles, others: Sequence[np.ndarray]) -> Doubles:
    """How far rounded inputs move each result; where that is no number, nothing is known of it."""
    spread = np.zeros(expected.shape)
    for other in others:
        moved = np.abs(doubles(other).reshape(expected.shape) - expected)
        spread = np.maximum(spread, np.where(np.isfinite(moved), moved, 0.0))
    return spread
