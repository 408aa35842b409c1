"""How far two arrays are apart, and whether that is within a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nki.core.dtypes import DType, from_numpy, unpack_x4

Doubles = npt.NDArray[np.float64]

_RELATIVE = {"float32": 1e-5, "tfloat32": 2.0**-10}
"""Default relative tolerance where it is not twice the unit roundoff: sums of float32 have no such bound."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element passes if its error is at most ``atol + rtol * |expected|``."""

    rtol: float
    atol: float

    def __str__(self) -> str:
        return "exact" if self.rtol == self.atol == 0 else f"rtol {self.rtol:.3g}, atol {self.atol:.3g}"

    def to_json(self) -> dict[str, float]:
        """JSON types only."""
        return {"rtol": self.rtol, "atol": self.atol}


@dataclass(frozen=True, slots=True)
class Difference:
    """Two arrays in figures.

    Attributes:
        elements, beyond: how many there are, and how many of them are beyond the tolerance.
        max_abs: largest error; infinite where only one of both is finite.
        max_rel: largest error relative to the expected value, over those that are not 0; None if there are none.
        rel_l2: 2-norm of the error over that of the expected values, over finite elements; None if the latter is 0.
        index: the element that exceeds what is allowed most.
        found, expected: its values.
        tolerance: what was allowed.
    """

    elements: int
    beyond: int
    max_abs: float
    max_rel: float | None
    rel_l2: float | None
    index: tuple[int, ...]
    found: float
    expected: float
    tolerance: Tolerance

    @property
    def passed(self) -> bool:
        return self.beyond == 0

    @property
    def verdict(self) -> str:
        """For the table."""
        if self.max_abs == 0:
            return "equal"
        return "within tolerance" if self.passed else "DIFFERS"

    def to_json(self) -> dict[str, Any]:
        """JSON types only; a figure that is not finite becomes text."""
        figures = {name: getattr(self, name) for name in ("max_abs", "max_rel", "rel_l2", "found", "expected")}
        return {
            "elements": self.elements,
            "beyond": self.beyond,
            **{name: plain(value) for name, value in figures.items()},
            "index": list(self.index),
            "tolerance": self.tolerance.to_json(),
        }


def plain(value: float | None) -> float | str | None:
    """A figure as JSON has it."""
    return value if value is None or np.isfinite(value) else str(value)


def tolerance_for(expected: Doubles, dtype: DType, rtol: float | None, atol: float | None) -> Tolerance:
    """What was asked for; by default what the dtype explains.

    `rtol` is twice the unit roundoff of the dtype, 1e-5 for float32, 2^-10 for tfloat32, and 0 for integers and packed
    values. `atol` is `rtol` times the root mean square of the expected values: terms of a sum may cancel.
    """
    if rtol is None:
        rtol = _relative(dtype)
    if atol is None:
        finite = expected[np.isfinite(expected)]
        atol = rtol * float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    return Tolerance(rtol, atol)


def _relative(dtype: DType) -> float:
    if not dtype.is_float or dtype.is_packed:
        return 0.0
    if dtype.name in _RELATIVE:
        return _RELATIVE[dtype.name]
    one = np.ones(1, dtype.numpy)
    following = (one.view(f"u{dtype.itemsize}") + 1).astype(f"u{dtype.itemsize}").view(dtype.numpy)
    return float(doubles(following)[0] - 1.0)


def doubles(array: npt.NDArray[Any]) -> Doubles:
    """The values of an array of any dtype, exactly but for 64-bit integers; packed elements become four."""
    if array.dtype.names is not None:
        return unpack_x4(np.ascontiguousarray(array), from_numpy(array.dtype)).astype(np.float64)
    return array.astype(np.float64)


@np.errstate(all="ignore")
def difference(found: Doubles, expected: Doubles, tolerance: Tolerance) -> Difference:
    """Compare two arrays of one shape; NaN equals NaN."""
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    error = np.where(same, 0.0, np.abs(found - expected))
    error = np.where(np.isnan(error), np.inf, error)
    size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    excess = error - (tolerance.atol + tolerance.rtol * size)
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    known = size > 0
    return Difference(
        elements=error.size,
        beyond=int((excess > 0).sum()),
        max_abs=float(error.max()),
        max_rel=float((error[known] / size[known]).max()) if known.any() else None,
        rel_l2=_relative_norm(error, size),
        index=tuple(int(each) for each in worst),
        found=float(found[worst]),
        expected=float(expected[worst]),
        tolerance=tolerance,
    )


def _relative_norm(error: Doubles, size: Doubles) -> float | None:
    norm = float(np.linalg.norm(size))
    return float(np.linalg.norm(error[np.isfinite(error)])) / norm if norm else None
