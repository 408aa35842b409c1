"""One core of a rank on its way through a program: the data of a collective move when all ranks are there."""

from __future__ import annotations

from heapq import heappush
from typing import NamedTuple

import numpy as np

from nki.target.model import Target
from nki.timing.bandwidth import NEVER
from nki.timing.cores import CoreTimeline
from nki.timing.hardware import Hardware
from nki.timing.plan import BlockPlan, LoopPlan, SegmentPlan, TimingPlanner
from nki.timing.recipe import TRANSFER
from nki.timing.run import CLEAR, SegmentRun
from nki.timing.state import SegmentState

EPS = 1e-6
"""ns; times that are closer than this are the same."""


class RankSegmentRun(SegmentRun):
    """A segment with collectives, which join others instead of moving data when their turn has come.

    Attributes:
        move: when data began to move, for each position; -1 if none did.
        joined_at: when a collective was ready, by position.
        moved_after: the transfer of the same queue that a transfer followed at once, or -1.
    """

    def __init__(
        self,
        plan: SegmentPlan,
        hardware: Hardware,
        target: Target,
        state: SegmentState,
        alone: bool,
        waits: frozenset[int],
    ) -> None:
        """Everything is still to come; `waits` are the positions in the program's walk that meet other ranks."""
        super().__init__(plan, hardware, target, state, alone)
        self.move = [-1.0] * len(plan.items)
        self.moved_after = [-1] * len(plan.items)
        self.joined_at: dict[int, float] = {}
        self._waits = waits
        self._ns: dict[int, float] = {}
        self._last: dict[int, int] = {}

    def gathered(self, now: float, position: int, ns: float) -> None:
        """Let the data of a collective move from a time on, for so long."""
        self._ns[position] = ns
        heappush(self._events, (now, CLEAR, position))

    def _move(self, now: float, position: int, follows: bool = False) -> None:
        if self.plan.first + position not in self._waits:
            super()._move(now, position, follows)
        elif position not in self._ns:
            self.joined_at[position] = now
            self.joined.append((now, position))
        else:
            recipe, ns = self.plan.recipes[position], self._ns[position]
            self._transfers.begin(now, position, ns, min(1.0, recipe.demand * recipe.ns / ns) if ns > 0.0 else 0.0)
        queue = self.plan.queue[position]
        if self.move[position] < 0.0:
            self.moved_after[position] = self._last.get(queue, -1) if follows else -1
        self.move[position], self._last[queue] = now, position


class Stretch:
    """A part of a program that is over; `run` is None of a part in which no rank is met. Times are of the core."""

    __slots__ = ("at", "ns", "run", "work")

    def __init__(self, at: float, ns: float, run: RankSegmentRun | None, work: np.ndarray) -> None:
        self.at, self.ns, self.run, self.work = at, ns, run, work


class Joined(NamedTuple):
    """A collective whose data wait for other ranks.

    Attributes:
        at: true time since when.
        position: in the walk over the program.
        run: the segment that it is in, which began at `base`, in time of the core.
    """

    at: float
    position: int
    run: RankSegmentRun
    base: float


class RankCore(CoreTimeline):
    """One core of a rank. Its own clock is as much slower as the rank is; what it tells others is in true time.

    Attributes:
        begun: true time at which its program began.
        slow: true ns for one of its own.
        pending: meetings, with other cores or ranks, that it has come to and that are not complete.
        joining: collectives that it has come to, and that nobody has noted yet.
        stretches: its program as it was, one part after another.
    """

    def __init__(
        self, plan: TimingPlanner, target: Target, begun: float, slow: float, alone: bool, waits: frozenset[int]
    ) -> None:
        self.begun, self.slow, self.pending = begun, slow, 0
        self.joining: list[Joined] = []
        self.stretches: list[Stretch] = []
        self._alone, self._waits = alone, waits
        super().__init__(plan, target, in_step=False)

    @property
    def next(self) -> float:
        """True time at which something happens next on it."""
        found = super().next
        return NEVER if found == NEVER else self.true(found)

    @property
    def over(self) -> bool:
        """Whether its program is."""
        return self.run is None

    @property
    def end(self) -> float:
        """True time of its end."""
        return self.true(self.spent.ns)

    def true(self, own: float) -> float:
        """True time of its own."""
        return self.begun + self.slow * own

    def advance(self, until: float) -> None:
        """Simulate up to a true time, or to a meeting with the other core or other ranks."""
        before = len(self.waiting)
        super().advance(until if until == NEVER else (until - self.begun) / self.slow)
        self.pending += len(self.waiting) - before
        run = self.run
        if isinstance(run, RankSegmentRun) and run.joined:
            now, position = run.joined.pop()
            self.pending += 1
            self.joining.append(Joined(self.true(self.base + now), run.plan.first + position, run, self.base))
        while self.run is not None and self.run.over:
            self.go_on()

    def meet(self, now: float) -> None:
        """Let the first meeting with the other core that it waits for begin at a true time."""
        _, position = self.waiting.popleft()
        assert self.run is not None, "a core that waits is in a segment"
        self.run.met((now - self.begun) / self.slow - self.base, position)
        self.pending -= 1

    def gathered(self, joined: Joined, now: float, ns: float) -> None:
        """Let the data of a collective move from a true time on, for so many true ns."""
        self.pending -= 1
        own = (now - self.begun) / self.slow - joined.base
        joined.run.gathered(own, joined.position - joined.run.plan.first, ns / self.slow)

    def segment(self, plan: SegmentPlan, state: SegmentState) -> SegmentRun:
        return RankSegmentRun(plan, self.work.hardware, self.target, state, self._alone, self._waits)

    def stops_in(self, plan: SegmentPlan | BlockPlan) -> bool:
        return plan.meets > 0 or plan.joins > 0

    def over_part(self, part: SegmentPlan | LoopPlan, at: float, ns: float) -> None:
        run = self.run if isinstance(self.run, RankSegmentRun) and self.run.plan is part else None
        if run is not None:
            work = _work_of(run, self._waits)
        else:
            work = np.array([[0.0, ns]])
        self.stretches.append(Stretch(at, ns, run, work))


def _work_of(run: RankSegmentRun, waits: frozenset[int]) -> np.ndarray:
    """From when to when a rank works on its own in a segment: engines, and transfers of its own."""
    rows = [
        (move if recipe.kind == TRANSFER and move >= 0.0 else start, end)
        for position, (recipe, start, move, end) in enumerate(
            zip(run.plan.recipes, run.start, run.move, run.end, strict=True)
        )
        if run.plan.first + position not in waits
    ]
    return union(np.array(rows).reshape(-1, 2))


def union(intervals: np.ndarray) -> np.ndarray:
    """Disjoint and ascending intervals that cover the same time; rows are start and end."""
    found = intervals[intervals[:, 1] > intervals[:, 0]]
    if not len(found):
        return np.empty((0, 2))
    found = found[np.argsort(found[:, 0], kind="stable")]
    reach = np.maximum.accumulate(found[:, 1])
    first = np.concatenate(([True], found[1:, 0] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((found[first, 0], reach[last]))
