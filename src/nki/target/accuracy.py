"""How far the timing model is from published measurements: the recorded comparison, and sums over it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "calibration"
ENGINES = ("tensor", "vector", "scalar", "gpsimd")
MOST = 0.9
"""Part of the time for which a unit works that bounds a kernel."""
LARGE = 25.0
"""Error in percent beyond which a point has a reason."""
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
        kernel: that it belongs to, which a cross-validation leaves out as a whole.
        group: of points with one source, which another one leaves out.
        kind: its class, which a third one leaves out: "vector", "scalar", "tensor", "dma", "latency", "kernel" or
            "ratio".
        bound: the unit that bounds it; "waits" if none does.
        measured, predicted: in `unit`.
        error: predicted over measured, less 1, in percent.
        left_out: the same with coefficients that were fitted without the kernel.
        left_out_source, left_out_class: without all points of its group, and of its class.
        given: why it is no prediction: the model was told the figure; "" if it was not.
        source: document, or project.
        note: what else is known of the measurement.
        reason: why the error is more than `LARGE`.
    """

    id: str
    target: str
    kernel: str
    group: str
    kind: str
    bound: str
    measured: float
    predicted: float
    unit: str
    error: float
    left_out: float
    left_out_source: float
    left_out_class: float
    given: str
    source: str
    note: str
    reason: str


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
class Listing:
    """A kernel as its tutorial prints it beside the one that was rebuilt as its profile shows it, in ns."""

    id: str
    target: str
    measured: float
    rebuilt: float
    printed: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """One kernel with other settings.

    Attributes:
        id: name.
        points: how many settings.
        tau: Kendall's rank correlation of predicted and measured times.
        chosen: the point with the shortest predicted time.
        regret: its measured time over the shortest measured one, less 1, in percent.
    """

    id: str
    points: int
    tau: float
    chosen: str
    regret: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A recorded comparison.

    Attributes:
        points: all of them, given ones too.
        shares, unfitted, listings, sweeps: see there.
        rankings: sequences of steps, slower first, and whether the model orders them so.
        excluded: what is not compared, and why.
        coefficients: how many were fitted.
    """

    points: tuple[Point, ...]
    shares: tuple[EngineShare, ...]
    unfitted: tuple[Unfitted, ...]
    listings: tuple[Listing, ...]
    sweeps: tuple[Sweep, ...]
    rankings: tuple[tuple[tuple[str, ...], bool], ...]
    excluded: tuple[tuple[str, str], ...]
    coefficients: int

    @property
    def predicted(self) -> tuple[Point, ...]:
        """The points that are predictions."""
        return tuple(point for point in self.points if not point.given)

    @property
    def summary(self) -> dict[str, Any]:
        """Mean errors over all predicted points, over classes, targets and sources, and where one engine bounds."""
        return {
            **means(self.predicted),
            "given": len(self.points) - len(self.predicted),
            "coefficients": self.coefficients,
            "large": [point.id for point in self.predicted if abs(point.error) > LARGE],
            "classes": self._by(lambda point: point.kind),
            "targets": self._by(lambda point: point.target),
            "sources": self._by(lambda point: point.group),
            "kernels": self._by(lambda point: point.kernel if point.kind == "kernel" else ""),
            "one_engine": mean(point.error for point in self.predicted if point.bound in ENGINES),
            "utilisation": max((abs(share.predicted - share.measured) for share in self.shares), default=0.0),
            "unfitted": mean(item.error for item in self.unfitted),
            "rankings_right": sum(right for _, right in self.rankings),
            "rankings": len(self.rankings),
        }

    def _by(self, key: Callable[[Point], str]) -> dict[str, dict[str, Any]]:
        names = sorted({key(point) for point in self.predicted} - {""})
        return {name: means([point for point in self.predicted if key(point) == name]) for name in names}


def means(points: Sequence[Point]) -> dict[str, Any]:
    """Mean absolute errors of some points in percent, also where kernel, source or class was left out; the largest."""
    worst = max(points, key=lambda point: abs(point.error))
    return {
        "points": len(points),
        "mape": mean(point.error for point in points),
        "mape_left_out": mean(point.left_out for point in points),
        "mape_left_out_source": mean(point.left_out_source for point in points),
        "mape_left_out_class": mean(point.left_out_class for point in points),
        "worst": {"id": worst.id, "error": worst.error},
    }


def mean(errors: Iterable[float]) -> float:
    """Mean of absolute values; 0 of nothing."""
    values = [abs(error) for error in errors]
    return sum(values) / len(values) if values else 0.0


def tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's rank correlation: pairs in the same order less pairs in the opposite one, over all pairs."""
    pairs = list(combinations(zip(first, second, strict=True), 2))
    signs = [math.copysign(1.0, (a - c) * (b - d)) for (a, b), (c, d) in pairs if a != c and b != d]
    return sum(signs) / len(pairs)


@cache  # the record does not change while the process runs
def recorded() -> Accuracy:
    """What benchmarks/timing_accuracy.py wrote the last time."""
    data = tomllib.loads((FOLDER / "accuracy.toml").read_text(encoding="utf-8"))
    listed = tomllib.loads((FOLDER / "points.toml").read_text(encoding="utf-8"))
    return Accuracy(
        points=tuple(Point(**item) for item in data["point"]),
        shares=tuple(EngineShare(**item) for item in data["utilisation"]),
        unfitted=tuple(Unfitted(**item) for item in data["unfitted"]),
        listings=tuple(Listing(**item) for item in data.get("listing", ())),
        sweeps=tuple(Sweep(**item) for item in data["sweep"]),
        rankings=tuple((tuple(item["steps"]), item["right"]) for item in data["ranking"]),
        excluded=tuple((item["id"], item["reason"]) for item in listed["excluded"]),
        coefficients=data["coefficients"],
    )


# --- how far off a prediction may be


@dataclass(frozen=True, slots=True)
class Interval:
    """How far off predictions for kernels of a kind were, with coefficients fitted without the points of their source.

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


@cache  # the record does not change while the process runs
def measured_kernels() -> tuple[Point, ...]:
    """The points that are times of whole kernels."""
    return tuple(point for point in recorded().points if point.kind == "kernel")


@cache  # as few as there are targets and units
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
        if (percent := covered([point.left_out_source for point in points], share)) is not None:
            return Interval(share, percent, len(points), name)
    return None


def covered(errors: Iterable[float], share: float) -> float | None:
    """The size that the next error does not pass in that share of cases, if it is like these; None if they are few.

    Of n errors that is the one of rank ``ceil(share * (n + 1))``, as conformal prediction has it.
    """
    sizes = sorted(map(abs, errors))
    rank = math.ceil(share * (len(sizes) + 1))
    return sizes[rank - 1] if rank <= len(sizes) else None
