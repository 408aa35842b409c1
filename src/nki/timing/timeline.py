"""The timeline of a program: when each instruction runs on the target, what it waits for, and how long all takes.

The input is what the compiler's last pass leaves: every instruction has a queue and its waits. Nothing is guessed but
trip counts that neither the program nor a run tells, and those are marked. Equal programs have equal timelines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nki.spec.program import Program
from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.loops import Clockwork, LoopTime, Records, Spent
from nki.timing.plan import TimingPlanner
from nki.timing.recipe import Recipes
from nki.timing.state import CAUSES, SegmentState


class Moment(NamedTuple):
    """One instruction in time.

    Attributes:
        position: in ``program.body.walk()``.
        queue: that runs it.
        start: ns from the start of the program, the first time that it runs.
        end: when it leaves its unit.
        visible: when other queues see its result.
        wait_ns: how long its queue stood still for it.
        waited_for: why it did, one of `CAUSES`; "" if it did not.
        blocker: position of the instruction that it waited for, or -1.
        slow_ns: what it took beyond its time on an idle core: shared bandwidth, an earlier transfer of its queue, the
            limit of the Tensor engine's clock, a running multiplication.
        runs: how often it runs.
    """

    position: int
    queue: str
    start: float
    end: float
    visible: float
    wait_ns: float
    waited_for: str
    blocker: int
    slow_ns: float
    runs: float


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A program of one core in time. Arrays are by position in ``program.body.walk()``; times are in ns.

    An instruction in a loop has the times of its first run; `loops` say when the next trips follow.

    Attributes:
        target: name of the target.
        validated: whether its model has been compared with published measurements.
        makespan: ns from the start to the end of the program.
        queues: names of the queues, to which `queue` points; -1 for an instruction that never runs.
        start, end, visible, turn: see `Moment`; `turn` is when its queue was ready for it. NaN if it never runs.
        cause: index into `CAUSES`.
        blocker: see `Moment`.
        alone: ns that it takes on an idle core until its result is visible.
        runs: how often it runs.
        busy: ns for each unit; for "dma" with at least one transfer in flight.
        nbytes: payload of all transfers.
        loops: in the order of the program.
    """

    target: str
    validated: bool
    makespan: float
    queues: tuple[str, ...]
    queue: np.ndarray
    start: np.ndarray
    end: np.ndarray
    visible: np.ndarray
    turn: np.ndarray
    cause: np.ndarray
    blocker: np.ndarray
    alone: np.ndarray
    runs: np.ndarray
    busy: Mapping[str, float]
    nbytes: float
    loops: tuple[LoopTime, ...]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def assumed(self) -> tuple[int, ...]:
        """Numbers of the loops whose trips are assumed."""
        return tuple(loop.number for loop in self.loops if loop.assumed)

    @property
    def wait(self) -> np.ndarray:
        """ns for which each instruction held its queue up."""
        return self.start - self.turn

    @property
    def slow(self) -> np.ndarray:
        """ns that each instruction took beyond its time on an idle core; rounding is cut off."""
        slow = self.visible - self.start - self.alone
        return np.where(slow > 1e-6, slow, 0.0)

    def instruction(self, position: int) -> Moment:
        """One instruction."""
        return Moment(
            position=position,
            queue=self.queues[self.queue[position]] if self.queue[position] >= 0 else "",
            start=float(self.start[position]),
            end=float(self.end[position]),
            visible=float(self.visible[position]),
            wait_ns=float(self.start[position] - self.turn[position]),
            waited_for=CAUSES[self.cause[position]],
            blocker=int(self.blocker[position]),
            slow_ns=max(0.0, float(self.visible[position] - self.start[position] - self.alone[position])),
            runs=float(self.runs[position]),
        )


def timeline(program: Program, target: Target, trips: Mapping[int, float] | None = None) -> Timeline:
    """The timeline of a synchronized program that runs on one core.

    Args:
        program: scheduled and synchronized (`Block.sync`).
        target: what it is timed for.
        trips: how often the body of a loop ran in a whole run, by the loop's position among all loops, an outer one
            before those in it. Loops with constant bounds need none; others without one count as one trip.

    Raises:
        VerificationError: the program is not synchronized (``timeline.unsynchronized``), its queues or waits do not fit
            (``timeline.queue``, ``timeline.wait``), or instructions wait for each other (``timeline.deadlock``).
    """
    plan = TimingPlanner(program, target, trips)
    work = Clockwork(plan, target)
    spent, _ = work.block(plan.body, SegmentState(), 0.0)
    return timeline_of(plan, target, work.records, spent)


def spent_by(program: Program, target: Target, recipes: Recipes | None = None) -> Spent:
    """What a synchronized program spends on one core: `timeline` without the times of its instructions.

    Args:
        program, target: as for `timeline`; loops whose trips nothing tells count as one trip.
        recipes: costs that are known already; see `TimingPlanner`.

    Raises:
        VerificationError: as `timeline`.
    """
    plan = TimingPlanner(program, target, None, recipes)
    return Clockwork(plan, target).block(plan.body, SegmentState(), None)[0]


def timeline_of(plan: TimingPlanner, target: Target, records: Records, spent: Spent) -> Timeline:
    """The timeline from the records of a run over a plan."""
    runs = np.ones(plan.size)
    for loop in plan.loops:
        runs[loop.first : loop.last] *= loop.trips
    return Timeline(
        target=target.name,
        validated=target.validated,
        makespan=spent.ns,
        queues=plan.hardware.queues,
        queue=np.array(records.queue, np.int16),
        start=np.array(records.start),
        end=np.array(records.end),
        visible=np.array(records.visible),
        turn=np.array(records.turn),
        cause=np.array(records.cause, np.int8),
        blocker=np.array(records.blocker, np.int32),
        alone=np.array(records.alone),
        runs=runs,
        busy=dict(zip(UNITS, spent.busy, strict=True)),
        nbytes=spent.nbytes,
        loops=tuple(records.loops[number] for number in sorted(records.loops)),
    )
