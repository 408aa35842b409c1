"""One line of a comparison: an output or a tap, on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.dtypes import DType
from nki.core.source import UNKNOWN, Location
from nki.tools.compare.measure import Difference, Doubles, Tolerance, difference, doubles, tolerance_for

Allow = Callable[[Doubles, DType], Tolerance]


@dataclass(frozen=True, slots=True)
class Row:
    """An output or a tap.

    Attributes:
        kind: "output" or "tap".
        name: with its number if there are several taps of that name.
        core: that made the tap.
        shape, dtype: of the kernel's value, or of the other one if the kernel has none.
        difference: None if the two cannot be compared.
        problem: why not; empty if they can.
        counts: whether the row decides about the exit code.
        location: of the tap.
    """

    kind: str
    name: str
    core: int
    shape: tuple[int, ...]
    dtype: str
    difference: Difference | None
    problem: str = ""
    counts: bool = True
    location: Location = UNKNOWN

    @property
    def passed(self) -> bool:
        return self.difference is not None and self.difference.passed

    @property
    def failed(self) -> bool:
        return self.counts and not self.passed

    @property
    def verdict(self) -> str:
        return self.problem if self.difference is None else self.difference.verdict

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "kind": self.kind,
            "name": self.name,
            "core": self.core,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "passed": self.passed,
            "counts": self.counts,
            "verdict": self.verdict,
            "difference": None if self.difference is None else self.difference.to_json(),
            "location": self.location.to_json(),
        }


def allowance(rtol: float | None, atol: float | None) -> Allow:
    """The tolerance for a value: what was asked for, by default what its dtype explains."""
    return lambda expected, dtype: tolerance_for(expected, dtype, rtol, atol)


def exact_unless(rtol: float | None, atol: float | None) -> Allow:
    """The tolerance for a value: what was asked for, by default none."""
    fixed = Tolerance(rtol or 0.0, atol or 0.0)
    return lambda expected, dtype: fixed


def compared(found: np.ndarray, dtype: DType, expected: np.ndarray, allow: Allow) -> Difference | str:
    """The difference, or why there is none: the shapes differ by more than sizes of 1."""
    left, right = doubles(found), doubles(expected)
    if without_ones(left.shape) != without_ones(right.shape):
        return f"DIFFERS: {shape_text(left.shape)} against {shape_text(right.shape)}"
    right = right.reshape(left.shape)
    return difference(left, right, allow(right, dtype))


def figure(value: float | None) -> str:
    """A figure for people."""
    return "-" if value is None else f"{value:.6g}"


def subscript(name: str, index: Sequence[int]) -> str:
    """``name[1, 2]``."""
    return f"{name}[{', '.join(str(at) for at in index)}]"


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its dimensions of size 1, in which arrays that are compared may differ."""
    return tuple(size for size in shape if size != 1)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape for people."""
    return " x ".join(str(size) for size in shape) or "a number"
