"""Advice: what costs most, in numbers, and what to change; rules look at one core and are ranked by what they save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nki.profiling.facts.critical_path import Piece
from nki.profiling.facts.dependence_edges import Edges, Waited
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


@dataclass(frozen=True, slots=True)
class Advice:
    """One bottleneck.

    Attributes:
        rule: stable name.
        engine: that it is about.
        message: what is slow, with numbers.
        fix: what to change.
        saving_ns: how much shorter the program gets at most if this is all that changes.
        positions: the instructions, those that cost most first.
    """

    rule: str
    engine: str
    message: str
    fix: str
    saving_ns: float
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
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

    def possible(self, unit: str, saved: float) -> float:
        """How much shorter the program can get if a unit works that much less: others keep working."""
        others = max(self.busy(name) for name in UNITS if name != unit)
        return max(0.0, min(saved, self.makespan - others))

    def shorter(self, unit: str, saved: Mapping[int, float]) -> float:
        """How much shorter the program can get if instructions of a unit, by position, take that many ns less.

        The rest of the critical path stays as long as it is. Of the trips of a loop it has only the first one.
        """
        on_path: dict[int, float] = defaultdict(float)
        for piece in self.path:
            on_path[piece.position] += piece.end - piece.start
        less = sum(ns if self.runs(at) > 1.0 else min(ns, on_path[at]) for at, ns in saved.items())
        return self.possible(unit, less)

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


def advise(evidence: Evidence, rules: Iterable[Rule]) -> list[Advice]:
    """What rules find worth mentioning, the largest saving first."""
    found = [advice for rule in rules if (advice := rule(evidence)) is not None]
    worth = [advice for advice in found if advice.saving_ns >= LEAST * evidence.makespan]
    return sorted(worth, key=lambda advice: (-advice.saving_ns, advice.rule))


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


def where(evidence: Evidence, costs: dict[int, float]) -> str:
    """The line that costs most: ``; 62 % of it in line 41 of kernels.py``; empty if no line is known."""
    lines: dict[Any, float] = defaultdict(float)
    for position, ns in costs.items():
        frame = evidence.core.items[position].location.frame
        if frame is not None:
            lines[frame.file, frame.line] += ns
    if not lines:
        return ""
    (file, line), most = max(lines.items(), key=lambda item: item[1])
    part = "all" if most >= _ALL * sum(costs.values()) else percent(most, sum(costs.values()))
    return f"; {part} of it in line {line} of {file.rpartition('/')[2]}"


def ranked(costs: dict[int, float]) -> tuple[int, ...]:
    """Positions, the most expensive first."""
    return tuple(sorted(costs, key=lambda position: (-costs[position], position)))
