"""How far the timing model is from published measurements: the recorded comparison, and sums over it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "calibration"
ENGINES = ("tensor", "vector", "scalar", "gpsimd")
MOST = 0.9
"""Part of the time for which a unit works that bounds a kernel."""
KINDS = {
    "dma": "transfers",
    "sync": "transfers",
    "tensor": "Tensor",
    "vector": "Vector or Scalar",
    "scalar": "Vector or Scalar",
    "gpsimd": "Vector or Scalar",
    "waits": "waits",
}
"""What bounds a kernel, by the unit that does; "waits" if none works for nearly all of the time."""


@dataclass(frozen=True, slots=True)
class Point:
    """A published time, or another figure, beside that of the model.

    Attributes:
        id: name.
        target: what it was measured on.
        kernel: that it belongs to, which the cross-validation leaves out as a whole.
        kind: "vector", "scalar", "tensor", "dma", "latency", "kernel" or "ratio".
        bound: the unit that bounds it; "waits" if none does.
        measured, predicted: in `unit`.
        error: predicted over measured, less 1, in percent.
        left_out: the same with coefficients that were fitted without the kernel.
        source: document, or project.
        note: what else is known of the measurement.
    """

    id: str
    target: str
    kernel: str
    kind: str
    bound: str
    measured: float
    predicted: float
    unit: str
    error: float
    left_out: float
    source: str
    note: str


@dataclass(frozen=True, slots=True)
class EngineShare:
    """Percent of the time for which an engine is active: measured and predicted."""

    id: str
    target: str
    engine: str
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class Unfitted:
    """A published time that was never used in a fit, and the error of the model in percent."""

    id: str
    target: str
    measured: float
    predicted: float
    unit: str
    error: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A recorded comparison; `rankings` are sequences of steps, slower first, and whether the model orders them so."""

    points: tuple[Point, ...]
    shares: tuple[EngineShare, ...]
    unfitted: tuple[Unfitted, ...]
    rankings: tuple[tuple[tuple[str, ...], bool], ...]
    excluded: tuple[tuple[str, str], ...]
    coefficients: int

    @property
    def summary(self) -> dict[str, Any]:
        """Mean errors over all points, over every class, and over those that one engine bounds."""
        worst = max(self.points, key=lambda point: abs(point.error))
        return {
            "points": len(self.points),
            "coefficients": self.coefficients,
            "mape": mean(point.error for point in self.points),
            "mape_left_out": mean(point.left_out for point in self.points),
            "worst": {"id": worst.id, "error": worst.error},
            "classes": self._by(lambda point: point.kind),
            "targets": self._by(lambda point: point.target),
            "one_engine": mean(point.error for point in self.points if point.bound in ENGINES),
            "utilisation": max((abs(share.predicted - share.measured) for share in self.shares), default=0.0),
            "unfitted": mean(item.error for item in self.unfitted),
            "rankings_right": sum(right for _, right in self.rankings),
            "rankings": len(self.rankings),
        }

    def _by(self, key: Any) -> dict[str, dict[str, float]]:
        found: dict[str, list[Point]] = {}
        for point in self.points:
            found.setdefault(key(point), []).append(point)
        return {
            name: {
                "points": len(points),
                "mape": mean(point.error for point in points),
                "mape_left_out": mean(point.left_out for point in points),
                "worst": max((point.error for point in points), key=abs),
            }
            for name, points in sorted(found.items())
        }


def mean(errors: Iterable[float]) -> float:
    """Mean of absolute values; 0 of nothing."""
    values = [abs(error) for error in errors]
    return sum(values) / len(values) if values else 0.0


def recorded() -> Accuracy:
    """What benchmarks/timing_accuracy.py wrote the last time."""
    data = tomllib.loads((FOLDER / "accuracy.toml").read_text(encoding="utf-8"))
    listed = tomllib.loads((FOLDER / "points.toml").read_text(encoding="utf-8"))
    return Accuracy(
        points=tuple(Point(**item) for item in data["point"]),
        shares=tuple(EngineShare(**item) for item in data["utilisation"]),
        unfitted=tuple(Unfitted(**item) for item in data["unfitted"]),
        rankings=tuple((tuple(item["steps"]), item["right"]) for item in data["ranking"]),
        excluded=tuple((item["id"], item["reason"]) for item in listed["excluded"]),
        coefficients=data["coefficients"],
    )


# --- how far off a prediction may be


@dataclass(frozen=True, slots=True)
class Interval:
    """How far off predictions for kernels of a kind were, when no time of their source had been fitted.

    Attributes:
        share: of the kernels that were within `percent`.
        percent: largest error of that share, in percent of the measured time, in either direction.
        points: measured kernels that this rests on.
        kind: which kernels those are, in words: "kernels on trn2 that transfers bound". It is a wider kind than the one
            asked for if that has too few.
    """

    share: float
    percent: float
    points: int
    kind: str


def bound_by(busy: Mapping[str, float], makespan: float) -> str:
    """The unit that bounds a kernel; "waits" if none does.

    Args:
        busy: ns for each unit.
        makespan: ns.
    """
    unit = max(busy, key=lambda name: busy[name])
    return unit if busy[unit] >= MOST * makespan else "waits"


@cache
def measured_kernels() -> tuple[Point, ...]:
    """The points that are times of whole kernels."""
    return tuple(point for point in recorded().points if point.kind == "kernel")


@cache
def interval(target: str, bound: str, share: float = 0.9) -> Interval | None:
    """How far off the predicted time of a kernel may be; None if no kernel of the target was measured.

    Args:
        target: name.
        bound: what bounds the kernel, see `bound_by`.
        share: of the kernels for which it shall hold, between 0 and 1.
    """
    kernels = measured_kernels()
    here = [point for point in kernels if point.target == target]
    if not here:
        return None
    kind = KINDS.get(bound, bound)
    same = [point for point in kernels if KINDS[point.bound] == kind]
    text = {"transfers": "that transfers bound", "waits": "in which no engine is always busy"}.get(
        kind, f"that {kind} bounds"
    )
    groups = (
        (f"kernels on {target} {text}", [point for point in same if point.target == target]),
        (f"kernels on all targets {text}", same),
        (f"kernels on {target}", here),
        ("kernels on all targets", kernels),
    )
    for name, points in groups:
        if (percent := covered([point.left_out for point in points], share)) is not None:
            return Interval(share, percent, len(points), name)
    return None


def covered(errors: Iterable[float], share: float) -> float | None:
    """The size that the next error does not pass in that share of cases, if it is like these; None if they are few.

    Of n errors that is the one of rank ``ceil(share * (n + 1))``, as conformal prediction has it.
    """
    sizes = sorted(map(abs, errors))
    rank = math.ceil(share * (len(sizes) + 1))
    return sizes[rank - 1] if rank <= len(sizes) else None
