"""One number for a candidate: 0 if anything is wrong with it, else how far it is on the way to the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nki.profiling.record import Profile
from nki.target.accuracy import Interval, bound_by, interval
from nki.target.model import Target
from nki.tools.arguments import ArraySpec

BASELINE_SCORE = 50.0
"""What a candidate has that is as fast as the baseline."""


@dataclass(frozen=True, slots=True)
class Times:
    """What the timing model says.

    Attributes:
        predicted_ns: of the candidate, of its slowest core, without what a launch adds.
        launch_ns: what a launch adds.
        bound_by: the unit that works longest.
        lower_bound_ns: no order of its instructions is faster.
        roofline_ns: no kernel for this task is faster; see `roofline`.
        baseline_ns: of the baseline; None without one.
        within: how far off predictions of such kernels were; None if nothing of the target was measured.
    """

    predicted_ns: float
    launch_ns: float
    bound_by: str
    lower_bound_ns: float
    roofline_ns: float
    baseline_ns: float | None
    within: Interval | None = None

    @property
    def share(self) -> float:
        """The part of the roofline that was reached."""
        return min(1.0, self.roofline_ns / self.predicted_ns) if self.predicted_ns else 1.0

    @property
    def speedup(self) -> float | None:
        """Over the baseline; None without one."""
        if self.baseline_ns is None or not self.predicted_ns:
            return None
        return self.baseline_ns / self.predicted_ns

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "predicted_ns": self.predicted_ns,
            "launch_ns": self.launch_ns,
            "bound_by": self.bound_by,
            "lower_bound_ns": self.lower_bound_ns,
            "roofline_ns": self.roofline_ns,
            "roofline_share": self.share,
            "baseline_ns": self.baseline_ns,
            "speedup": self.speedup,
            "within": None if self.within is None else asdict(self.within),
        }


def times_of(profile: Profile, roofline_ns: float, baseline_ns: float | None) -> Times:
    """The times in a profile, which was made by this process."""
    about = profile.about
    slowest = max(about.totals, key=lambda totals: totals["makespan_ns"])
    return Times(
        predicted_ns=about.makespan_ns,
        launch_ns=about.launch_ns,
        bound_by=slowest["bound_by"],
        lower_bound_ns=slowest["bounds"]["dependences"],
        roofline_ns=roofline_ns,
        baseline_ns=baseline_ns,
        within=interval(about.target, bound_by(slowest["units"], slowest["makespan_ns"])),
    )


def score_of(times: Times) -> float:
    """From 0 to 100; see docs/grade.md.

    Without a baseline it is the share of the roofline in percent. With one, a candidate as fast as the baseline has 50,
    a slower one less in proportion to its speed, a faster one more by how much of the way to the roofline it has gone.
    """
    if times.baseline_ns is None:
        return 100.0 * times.share
    speedup = times.speedup or 1.0
    if speedup <= 1.0:
        return BASELINE_SCORE * speedup
    before = min(1.0, times.roofline_ns / times.baseline_ns)
    way = (times.share - before) / (1.0 - before) if before < 1.0 else 1.0
    return BASELINE_SCORE + (100.0 - BASELINE_SCORE) * way


def roofline(arrays: Sequence[ArraySpec], result_bytes: int, flops: float, cores: int, target: Target) -> float:
    """ns that any kernel for a task takes: it follows from the task alone, so that no candidate can move it.

    Every argument and result is moved once at the full DMA rate, and the matrix products of the reference are made at
    the documented peak for the widest float among the arguments, whichever takes longer.
    """
    moved = result_bytes + sum(_nbytes(spec) for spec in arrays)
    widths = [spec.dtype.itemsize for spec in arrays if spec.dtype.is_float and not spec.dtype.is_packed]
    peak, width = target.peak, max(widths, default=4)
    rate = peak.tensor_fp32_tflops if width == 4 else peak.tensor_bf16_tflops
    if width == 1 and peak.tensor_fp8_tflops:
        rate = peak.tensor_fp8_tflops
    return max(moved / target.dma.aggregate_gbps, flops / (rate * 1000.0)) / cores


def _nbytes(spec: ArraySpec) -> int:
    total = spec.dtype.itemsize
    for size in spec.shape:
        total *= size
    return total
