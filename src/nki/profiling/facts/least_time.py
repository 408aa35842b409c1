"""The least time of a program in any order, with what comes before the work of each unit and after it.

No order of the instructions is faster, and no compiler's: a segment takes at least as long as its longest chain of
dependences, and as every unit needs for its work if it begins each instruction when it can be there at the earliest,
always has the one at hand after which most is left to do, and may even interrupt it (the preemptive schedule by
J. R. Jackson, which is the best there can be). So the first load and the last store, in which the busiest unit cannot
work, are part of that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from nki.profiling.facts.change import Change, Needs
from nki.profiling.facts.timed_core import CoreFacts
from nki.spec.queue import queue_class
from nki.timing.clock import Clock
from nki.timing.hardware import DMA, SCALAR, TENSOR
from nki.timing.plan import BlockPlan, LoopPlan, SegmentPlan
from nki.timing.recipe import MATMUL, TRANSFER, Recipe

_QUEUES = -1
"""The DMA queues together, beside the units by number."""


class Job(NamedTuple):
    """Work of a unit: ns until it can begin, that it takes, and that pass at least after it."""

    head: float
    work: float
    tail: float


class LeastTime:
    """The least time of one core, for the program as it is and for changes of it."""

    def __init__(self, core: CoreFacts, needs: Needs) -> None:
        self._core, self._needs = core, needs
        self._class = [queue_class(issued) for issued in core.items]

    def ns(self, change: Change) -> float:
        """ns that the changed program takes at least."""
        self._tables: set[str] = set()
        self._cold = Clock.limits(self._core.target.throttle)
        if change.unrolled:
            return self._unrolled(change)
        return self._block(self._core.plan.body, change)

    def _block(self, block: BlockPlan, change: Change) -> float:
        total = 0.0
        for part in block.parts:
            if isinstance(part, LoopPlan):
                pause = self._core.plan.hardware.barrier
                first = self._block(part.body, change) if part.trips >= 1.0 else 0.0
                later = self._block(part.body, change) if part.trips != 1.0 else 0.0  # its tables are there already
                total += pause + first + max(0.0, part.trips - 1.0) * later + part.trips * pause
            else:
                total += self._segment(part, change)
        return total

    def _segment(self, segment: SegmentPlan, change: Change) -> float:
        found = _Segment(self._core, self._needs, self._class, segment, change)
        jobs = found.jobs()
        self._tables_of(found, jobs)
        self._clock_of(jobs)
        return max(found.longest, max((preemptive(each) for each in jobs.values()), default=0.0))

    def _unrolled(self, change: Change) -> float:
        """Without barriers the trips overlap: units have the work of all, and one trip's chain is the least chain."""
        work: dict[int, float] = defaultdict(float)
        longest = 0.0
        for segment, runs in _segments(self._core.plan.body, 1.0):
            found = _Segment(self._core, self._needs, self._class, segment, change)
            longest = max(longest, found.longest if runs >= 1.0 else 0.0)
            for unit, jobs in found.jobs().items():
                work[unit] += runs * sum(job.work for job in jobs)
        return max(longest, max(work.values(), default=0.0))

    def _tables_of(self, found: _Segment, jobs: dict[int, list[Job]]) -> None:
        """Scalar loads every table once, before the first activation that needs it."""
        for table, there in found.tables().items():
            if table not in self._tables:
                self._tables.add(table)
                head, tail = min(job.head for job in there), min(job.work + job.tail for job in there)
                jobs[SCALAR].append(Job(head, self._core.plan.hardware.table_load, tail))

    def _clock_of(self, jobs: dict[int, list[Job]]) -> None:
        """Tensor starts every program at a part of its rate."""
        mine, throttle = jobs.get(TENSOR), self._core.target.throttle
        if mine and self._cold:
            self._cold = False
            work = sum(job.work for job in mine)
            slower = min(
                throttle.ramp_ns * (1.0 - throttle.start_utilization), work / throttle.start_utilization - work
            )
            mine.append(Job(min(job.head for job in mine), slower, min(job.tail for job in mine)))


def _segments(block: BlockPlan, runs: float) -> Iterator[tuple[SegmentPlan, float]]:
    """Segments, each with how often it runs."""
    for part in block.parts:
        if isinstance(part, LoopPlan):
            yield from _segments(part.body, runs * part.trips)
        else:
            yield part, runs


class _Segment:
    """One segment of a changed program, by position in the walk.

    Attributes:
        longest: ns of the longest chain of dependences.
    """

    def __init__(self, core: CoreFacts, needs: Needs, classes: list[str], segment: SegmentPlan, change: Change) -> None:
        self._core, self._classes = core, classes
        first, after = segment.first, segment.first + len(segment.items)
        self._positions = [at for at in range(first, after) if at not in change.gone]
        self._recipes = {at: change.recipes.get(at, core.recipes[at]) for at in self._positions}
        self._needs = {at: [p for p in needs.of(at, change) if p >= first] for at in self._positions}
        self._part = change.pieces
        self._heads()
        self._tails()
        self.longest = max((self._start[at] + self._left[at] for at in self._positions), default=0.0)

    def _queue(self, at: int, recipe: Recipe) -> str:
        """The queue's class; work that a change gives to another engine waits in that engine's."""
        return self._classes[at] if recipe is self._core.recipes[at] else f"{recipe.kind} {recipe.unit}"

    def _heads(self) -> None:
        """When each can start, and when its data can move, at the earliest."""
        self._start: dict[int, float] = {}
        self._moved: dict[int, float] = {}
        visible: dict[int, float] = {}
        for at in self._positions:
            recipe, start, moved = self._recipes[at], 0.0, 0.0
            for producer in self._needs[at]:
                other = self._recipes[producer]
                if recipe.kind == TRANSFER and other.kind == TRANSFER:
                    moved = max(moved, visible[producer] - other.latency)
                elif self._same_queue(at, producer):
                    start = max(start, self._start[producer] + _hold(other) * self._part)
                else:
                    start = max(start, visible[producer] + other.signal)
            self._start[at] = start
            self._moved[at] = max(start + _before_moving(recipe), moved)
            visible[at] = max(start + self._alone(recipe), moved + self._least(recipe) + recipe.latency)

    def _tails(self) -> None:
        """What is left from the start of each, from the end of its work, and from the start of its data, at least."""
        seen, freed, ended = (dict.fromkeys(self._positions, 0.0) for _ in range(3))
        self._left: dict[int, float] = {}
        self._after: dict[int, float] = {}
        self._holds: dict[int, float] = freed
        for at in reversed(self._positions):
            recipe = self._recipes[at]
            self._after[at] = max(recipe.latency + seen[at], ended[at])
            moving = self._least(recipe) + self._after[at]
            whole = self._alone(recipe) - recipe.latency + self._after[at]
            self._left[at] = max(whole, _hold(recipe) * self._part + freed[at])
            for producer in self._needs[at]:
                if recipe.kind == TRANSFER and self._recipes[producer].kind == TRANSFER:
                    ended[producer] = max(ended[producer], moving)
                elif self._same_queue(at, producer):
                    freed[producer] = max(freed[producer], self._left[at])
                else:
                    seen[producer] = max(seen[producer], self._recipes[producer].signal + self._left[at])

    def _same_queue(self, at: int, producer: int) -> bool:
        return self._queue(at, self._recipes[at]) == self._queue(producer, self._recipes[producer])

    def _least(self, recipe: Recipe) -> float:
        """ns in which the last unit can be done, if it follows another instruction or works on a piece only."""
        return (recipe.ns - max(0.0, recipe.skew)) * self._part

    def _alone(self, recipe: Recipe) -> float:
        return recipe.alone - recipe.ns + self._least(recipe)

    def jobs(self) -> dict[int, list[Job]]:
        """The work of each unit."""
        found: dict[int, list[Job]] = defaultdict(list)
        queues = sum(name.startswith("dma") for name in self._core.plan.hardware.queues)
        for at in self._positions:
            recipe, start, left = self._recipes[at], self._start[at], self._left[at]
            if recipe.kind == TRANSFER:
                after, moving = self._after[at], self._moved[at]
                found[DMA].append(Job(moving, recipe.work, after))
                found[_QUEUES].append(Job(moving, (recipe.ns - max(0.0, recipe.skew)) / queues, after))
            offset, before = 0.0, recipe.chain[0] if recipe.chain else None
            for step in recipe.chain:
                unit, ns, _ = step
                if before is not None and step is not before and before[0] != unit:
                    offset += before[2]
                part = ns * self._part
                ends = start + offset + part
                last = recipe.kind != TRANSFER and step is recipe.chain[-1]
                tail = max(self._after[at], self._holds[at] if recipe.kind != MATMUL else 0.0) if last else 0.0
                found[unit].append(Job(start + offset, ns, tail if last else max(0.0, start + left - ends)))
                offset, before = offset + part, step
        return found

    def tables(self) -> dict[str, list[Job]]:
        """The activations that need each table."""
        found: dict[str, list[Job]] = defaultdict(list)
        for at in self._positions:
            recipe = self._recipes[at]
            if recipe.table is not None:
                found[recipe.table].append(Job(self._start[at], recipe.ns, self._after[at]))
        return found


def _before_moving(recipe: Recipe) -> float:
    """ns from the start of a transfer until its data can move."""
    if recipe.kind != TRANSFER or not recipe.chain:
        return 0.0
    return sum(ns for _, ns, _ in recipe.chain) + recipe.chain[-1][2]


def _hold(recipe: Recipe) -> float:
    """ns for which an instruction at least holds its queue."""
    return recipe.chain[0][1] if recipe.kind == MATMUL else sum(ns for _, ns, _ in recipe.chain)


def preemptive(jobs: Iterable[Job]) -> float:
    """The least end of all that follows these jobs if one unit does them, and may interrupt one for another."""
    coming = sorted(jobs)
    waiting: list[tuple[float, float]] = []
    now, last, at = 0.0, 0.0, 0
    while at < len(coming) or waiting:
        if not waiting:
            now = max(now, coming[at].head)
        while at < len(coming) and coming[at].head <= now:
            heappush(waiting, (-coming[at].tail, coming[at].work))
            at += 1
        tail, work = heappop(waiting)
        until = coming[at].head if at < len(coming) else float("inf")
        done = min(work, until - now)
        now += done
        if work - done > 0.0:
            heappush(waiting, (tail, work - done))
        else:
            last = max(last, now - tail)
    return last
