"""How far the timing model is from published measurements: the recorded comparison, and sums over it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "calibration"
ENGINES = ("tensor", "vector", "scalar", "gpsimd")


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
