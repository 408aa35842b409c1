"""Advice: what costs most, in numbers, and what to change; rules look at one core and are ranked by what they save.

What an advice saves at most is a bound: the makespan less the least time that any order of the changed program takes
(`nki.profiling.facts.least_time`). What it is expected to save is found by timing the changed program in the order of
the compiled one (`nki.profiling.facts.retiming`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nki.core.locks import cached_property
from nki.core.source import is_own
from nki.profiling.facts.change import Change, Needs
from nki.profiling.facts.critical_path import Piece
from nki.profiling.facts.dependence_edges import Edges, Waited
from nki.profiling.facts.least_time import LeastTime
from nki.profiling.facts.retiming import Retiming
from nki.profiling.facts.time_breakdown import Spent
from nki.profiling.facts.timed_core import CoreFacts
from nki.profiling.facts.work import Facts
from nki.spec.program import Issued
from nki.spec.step import UNITS
from nki.timing.cost import cost_of

LEAST = 0.03
"""Part of the makespan that a change has to save to be mentioned."""

COMPUTE = ("tensor", "vector", "scalar", "gpsimd")
_NAMES = {
    "tensor": "TensorE",
    "vector": "VectorE",
    "scalar": "ScalarE",
    "gpsimd": "GpSimdE",
    "sync": "SyncE",
    "dma": "DMA",
}
_ALL = 0.995


class Gain(NamedTuple):
    """How much shorter the program gets, in ns: in the order of the compiled one, and in any order at most."""

    expected: float
    most: float


@dataclass(frozen=True, slots=True)
class Advice:
    """One bottleneck.

    Attributes:
        rule: stable name.
        engine: that it is about.
        message: what is slow, with numbers.
        fix: what to change.
        gain: how much shorter the program gets if this is all that changes.
        costs: the instructions by position, each with what it costs.
    """

    rule: str
    engine: str
    message: str
    fix: str
    gain: Gain
    costs: Mapping[int, float]


@dataclass(frozen=True)
class Evidence:
    """What rules look at: one core in time, by position in the walk over its program."""

    core: CoreFacts
    facts: Sequence[Facts]
    spent: Spent
    path: Sequence[Piece]
    waited: Sequence[Waited]
    bounds: Mapping[str, float]
    edges: Edges
    trips: Mapping[int, float] | None

    @property
    def makespan(self) -> float:
        """ns of the program."""
        return self.core.line.makespan

    def busy(self, unit: str) -> float:
        """ns that a unit works in all; of DMA the part of its engines that transfers use."""
        return self.bounds[f"unit {unit}"]

    def runs(self, position: int) -> float:
        """How often an instruction runs."""
        return self.core.runs[position]

    def on(self, *units: str) -> list[int]:
        """Positions of the instructions whose work is done by these units."""
        return [at for at in range(len(self.core.items)) if self.core.ran[at] and self.core.unit(at) in units]

    def ns(self, position: int) -> float:
        """Work on its own unit, all runs."""
        return self.core.recipes[position].ns * self.runs(position)

    @cached_property
    def _needs(self) -> Needs:
        return Needs(self.core, self.edges)

    @cached_property
    def _least(self) -> LeastTime:
        return LeastTime(self.core, self._needs)

    @cached_property
    def _retiming(self) -> Retiming:
        return Retiming(self.core, self._needs)

    @cached_property
    def _alone(self) -> float:
        """ns of the program if the other core is never waited for."""
        return self._retiming.ns(Change())

    def most(self, change: Change) -> float:
        """ns by which a change makes the program shorter at most, whatever the order of what is left."""
        return max(0.0, self.makespan - self._least.ns(change))

    def expected(self, change: Change) -> float:
        """ns by which a change makes the program shorter if its order stays."""
        return max(0.0, self._alone - self._retiming.ns(change))

    def gain(self, change: Change) -> Gain:
        """How much shorter a change makes the program."""
        return self.within(self.expected(change), change)

    def within(self, expected: float, change: Change) -> Gain:
        """The gain of a change that leads to another order, of which is known what it saves if all goes well.

        What is not worth mentioning is not looked at closer.
        """
        if expected < LEAST * self.makespan:
            return Gain(max(0.0, expected), max(0.0, expected))
        most = self.most(change)
        return Gain(min(expected, most), most)

    def starting(self, position: int) -> float:
        """ns that a transfer takes of the unit that starts it, all runs."""
        return sum(ns for _, ns, _ in self.core.recipes[position].chain) * self.runs(position)

    def busiest(self) -> str:
        """The unit that works longest."""
        return max(UNITS, key=self.busy)


Rule = Callable[[Evidence], Advice | None]


def work(issued: Issued, evidence: Evidence) -> float:
    """ns that an instruction occupies its last unit, by the formulas of its declaration."""
    steps = cost_of(issued, evidence.core.target)
    return sum(step.ns for step in steps if step.unit == steps[-1].unit)


def most_of(evidence: Evidence, costs: Mapping[int, float]) -> str:
    """The unit that most of the costs belong to."""
    by_unit: dict[str, float] = defaultdict(float)
    for position, ns in costs.items():
        by_unit[evidence.core.unit(position)] += ns
    return max(by_unit, key=lambda unit: by_unit[unit])


def advise(evidence: Evidence, rules: Iterable[Rule]) -> list[Advice]:
    """What rules find worth mentioning, the largest saving first, but a cause before its symptoms."""
    found = [advice for rule in rules if (advice := rule(evidence)) is not None]
    worth = [advice for advice in found if advice.gain.expected >= LEAST * evidence.makespan]
    worth.sort(key=lambda advice: (-advice.gain.expected, advice.rule))
    ordered: list[Advice] = []
    for advice in worth:
        first = next((at for at, other in enumerate(ordered) if _is_cause(advice, other)), len(ordered))
        ordered.insert(first, advice)
    return ordered


def _is_cause(advice: Advice, other: Advice) -> bool:
    """Whether what one advice speaks of leads to what another one speaks of, about some of the same instructions."""
    if other.rule not in SYMPTOMS.get(advice.rule, ()) or advice.costs.keys().isdisjoint(other.costs):
        return False
    return advice.gain.expected >= _PART * other.gain.expected


_PART = 0.2
"""A cause comes first if it saves at least this part of what its symptom would."""

SYMPTOMS: Mapping[str, tuple[str, ...]] = {
    "repeated-loads": ("small-descriptors", "transfer-starts", "no-overlap", "few-partitions"),
    "round-trips": ("small-descriptors", "transfer-starts", "no-overlap", "few-partitions"),
    "repeated-results": ("short-instructions", "few-partitions", "two-inputs", "fusion", "engine-balance"),
    "reused-buffers": ("no-overlap",),
    "transfer-starts": ("no-overlap",),
}
"""What need not be done at all is not to be done in another way: the advice that comes first, and those after it."""


# --- words


def percent(part: float, whole: float) -> str:
    """``62 %``."""
    return f"{100.0 * part / whole:.0f} %" if whole else "0 %"


def duration(ns: float) -> str:
    """``1.25 µs``, ``23.74 ms`` or ``1.2 s``: never more than three digits before the point."""
    size, unit = next(
        ((size, unit) for size, unit in ((1e3, "µs"), (1e6, "ms")) if abs(ns) < 999.95 * size), (1e9, "s")
    )
    return f"{ns / size:.4g} {unit}"


def engine_name(unit: str) -> str:
    """``VectorE``."""
    return _NAMES.get(unit, unit)


def busy(evidence: Evidence, unit: str) -> str:
    """``VectorE is busy 98 % of the time``."""
    return f"{engine_name(unit)} is busy {percent(evidence.busy(unit), evidence.makespan)} of the time"


def counted(number: float, what: str) -> str:
    """``1 element``, ``12 elements``."""
    return f"{number:,.0f} {what}{'' if f'{number:,.0f}' == '1' else 's'}"


def times(number: float) -> str:
    """``twice``, ``16 times``, ``2.5 times``."""
    return "twice" if number == 2 else f"{number:.3g} times"


def amount(nbytes: float) -> str:
    """``512 bytes``, ``64 KiB``, ``1.5 MiB``."""
    size, unit = (2**20, "MiB") if nbytes >= 2**20 else (2**10, "KiB") if nbytes >= 2**10 else (1, "bytes")
    return f"{nbytes / size:.3g} {unit}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]


def line_of(evidence: Evidence, position: int) -> int:
    """The line of an instruction in the kernel; 0 if it is not known."""
    frame = evidence.core.items[position].location.frame
    return frame.line if frame is not None else 0


def where(evidence: Evidence, costs: Mapping[int, float]) -> str:
    """The line that costs most: ``; 62 % of it in line 41 of kernels.py, called in line 90``; empty without lines."""
    lines: dict[tuple[Any, ...], float] = defaultdict(float)
    for position, ns in costs.items():
        frames = evidence.core.items[position].location.frames
        if frames:
            lines[frames[0].file, frames[0].line] += ns
    if not lines:
        return ""
    (file, line), most = max(lines.items(), key=lambda item: item[1])
    part = "all" if most >= _ALL * sum(costs.values()) else percent(most, sum(costs.values()))
    return f"; {part} of it in line {line} of {file.rpartition('/')[2]}{_called(evidence, costs, (file, line))}"


def _called(evidence: Evidence, costs: Mapping[int, float], place: tuple[str, int]) -> str:
    """Where most of a line's cost is called from, if the line is in a function that the kernel calls."""
    callers: dict[tuple[str, int], float] = defaultdict(float)
    for position, ns in costs.items():
        frames = [frame for frame in evidence.core.items[position].location.frames if not is_own(frame)]
        if len(frames) > 1 and (frames[0].file, frames[0].line) == place:
            callers[frames[-1].file, frames[-1].line] += ns
    if not callers:
        return ""
    (file, line), _ = max(callers.items(), key=lambda item: item[1])
    return f", called in line {line}" + (f" of {file.rpartition('/')[2]}" if file != place[0] else "")
