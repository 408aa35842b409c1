"""Blocks in time: one segment after another, and loops whose trips are timed until they repeat themselves.

A segment starts with idle queues, so that its length depends only on the `SegmentState` in which it starts. A loop is
timed trip by trip until a trip starts in a state that an earlier one started in; from there on the trips are copies,
and a trip count of a million costs nothing. The first trip usually differs (activation table, clock), the second is
steady.
"""

from __future__ import annotations

from typing import NamedTuple

from nki.core.errors import VerificationError
from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.hardware import Hardware
from nki.timing.plan import BlockPlan, LoopPlan, SegmentPlan, TimingPlanner
from nki.timing.run import SegmentRun
from nki.timing.state import SegmentState

MOST_TRIPS = 64
"""Trips that are timed if none starts like an earlier one; the last of them stands for all that follow."""


class Spent(NamedTuple):
    """Time and work of a part of a program.

    Attributes:
        ns: its length.
        busy: ns for each unit; of DMA those with at least one transfer in flight.
        nbytes: payload of DMA.
        moved: ns for which all DMA engines of the core would have to work for its transfers.
        instructions: that ran.
    """

    ns: float = 0.0
    busy: tuple[float, ...] = (0.0,) * len(UNITS)
    nbytes: float = 0.0
    moved: float = 0.0
    instructions: float = 0.0

    def plus(self, other: Spent, times: float = 1.0) -> Spent:
        """This, and then another part several times."""
        return Spent(
            self.ns + other.ns * times,
            tuple(a + b * times for a, b in zip(self.busy, other.busy, strict=True)),
            self.nbytes + other.nbytes * times,
            self.moved + other.moved * times,
            self.instructions + other.instructions * times,
        )


def spent_by_segment(run: SegmentRun) -> Spent:
    """What a segment that was simulated to its end has spent."""
    busy, nbytes, moved = list(run.busy), 0.0, 0.0
    for recipe in run.plan.recipes:
        for unit, ns in recipe.busy:
            busy[unit] += ns
        nbytes += recipe.nbytes
        moved += recipe.ns * recipe.demand
    return Spent(run.ns, tuple(busy), nbytes, moved, len(run.plan.items))


class LoopTime(NamedTuple):
    """A loop in time.

    Attributes:
        number: position among all loops, an outer one before those in it.
        first, last: range of its instructions in the walk over the program.
        trips: each time that it is entered.
        assumed: whether nothing says how many trips there are.
        start: ns from the start of the program to its first trip.
        first_ns, steady_ns: length of the first trip and of the last one that was timed, with the barrier after it.
    """

    number: int
    first: int
    last: int
    trips: float
    assumed: bool
    start: float
    first_ns: float
    steady_ns: float


class Records:
    """Columns by position in the walk, filled when an instruction is timed for the first time; times in ns."""

    def __init__(self, size: int) -> None:
        self.start, self.end, self.visible, self.turn = ([float("nan")] * size for _ in range(4))
        self.queue, self.cause, self.blocker = [-1] * size, [0] * size, [-1] * size
        self.alone, self.runs = [0.0] * size, [0.0] * size
        self.loops: dict[int, LoopTime] = {}

    def take(self, run: SegmentRun, at: float) -> None:
        """Copy what a segment's run found; it started at that time."""
        plan = run.plan
        here = slice(plan.first, plan.first + len(plan.items))
        self.start[here] = [at + t for t in run.start]
        self.end[here] = [at + t for t in run.end]
        self.visible[here] = [at + t for t in run.visible]
        self.turn[here] = [at + t for t in run.turn]
        self.queue[here] = plan.queue
        self.cause[here] = run.cause
        self.blocker[here] = [plan.first + b if b >= 0 else -1 for b in run.blocker]
        self.alone[here] = [recipe.alone for recipe in plan.recipes]


class Clockwork:
    """Times the blocks of one program."""

    def __init__(self, plan: TimingPlanner, target: Target) -> None:
        self.plan, self.target = plan, target
        self.hardware: Hardware = plan.hardware
        self.records = Records(plan.size)
        self._known: dict[tuple[int, SegmentState], tuple[Spent, SegmentState]] = {}

    def block(self, block: BlockPlan, state: SegmentState, at: float | None) -> tuple[Spent, SegmentState]:
        """One run of a block; `at` is its start if it is the first run, which is recorded."""
        # Times depend on nothing but the state at the start, and only the first run is recorded.
        if at is None and (block.number, state) in self._known:
            return self._known[block.number, state]
        entry, spent = state, Spent()
        for part in block.parts:
            when = None if at is None else at + spent.ns
            found, state = self.part(part, state, when)
            spent = spent.plus(found)
        self._known[block.number, entry] = spent, state
        return spent, state

    def part(self, part: SegmentPlan | LoopPlan, state: SegmentState, at: float | None) -> tuple[Spent, SegmentState]:
        """One run of a segment or a loop."""
        if isinstance(part, LoopPlan):
            return self._loop(part, state, at)
        run = SegmentRun(part, self.hardware, self.target, state)
        run.advance()
        return self.finish(run, at)

    def finish(self, run: SegmentRun, at: float | None) -> tuple[Spent, SegmentState]:
        """What a segment that was simulated has spent; raises VerificationError if it cannot end."""
        if not run.over:
            raise _stuck(run)
        if at is not None:
            self.records.take(run, at)
        return spent_by_segment(run), run.state()

    def _loop(self, loop: LoopPlan, state: SegmentState, at: float | None) -> tuple[Spent, SegmentState]:
        """Barriers stand before the first trip and after every one."""
        pause = Spent(self.hardware.barrier)
        seen: dict[SegmentState, int] = {}
        trips: list[Spent] = []
        states = [state]
        while len(trips) < min(loop.trips, MOST_TRIPS) and states[-1] not in seen:
            seen[states[-1]] = len(trips)
            when = at + pause.ns if at is not None and not trips else None
            spent, after = self.block(loop.body, states[-1], when)
            trips.append(spent.plus(pause))
            states.append(after)
        repeat = seen.get(states[-1], len(trips) - 1)
        if at is not None:
            self.note(loop, trips, at + pause.ns)
        total = pause
        for trip, times in zip(trips, counts(loop.trips, len(trips), repeat), strict=True):
            total = total.plus(trip, times)
        return total, states[_place(int(loop.trips), len(trips), repeat)]

    def note(self, loop: LoopPlan, trips: list[Spent], at: float) -> None:
        first, steady = (trips[0].ns, trips[-1].ns) if trips else (0.0, 0.0)
        self.records.loops[loop.number] = LoopTime(
            loop.number, loop.first, loop.last, loop.trips, loop.assumed, at, first, steady
        )


def counts(trips: float, timed: int, repeat: int) -> list[float]:
    """How often each of the timed trips happens, if those from `repeat` on happen again and again.

    The fraction of a mean number of trips is that fraction of one more trip.
    """
    whole = int(trips)
    times = [1.0 if trip < whole else 0.0 for trip in range(timed)]
    if timed > repeat >= 0:
        more, first = divmod(max(0, whole - timed), timed - repeat)
        for trip in range(repeat, timed):
            times[trip] += more + (1 if trip - repeat < first else 0)
        times[_like(whole, timed, repeat)] += trips - whole
    return times


def _like(trip: int, timed: int, repeat: int) -> int:
    """The timed trip that a later one copies."""
    return trip if trip < timed else repeat + (trip - repeat) % (timed - repeat)


def _place(whole: int, timed: int, repeat: int) -> int:
    """The number of timed trips after which the state is that after so many trips."""
    if whole <= timed:
        return whole
    return timed if timed - repeat == 1 else _like(whole, timed, repeat)


def _stuck(run: SegmentRun) -> VerificationError:
    position = next(p for p, end in enumerate(run.visible) if not end)
    issued = run.plan.items[position]
    return VerificationError(
        "timeline.deadlock",
        f"{issued.instruction.label} never starts: instructions wait for each other in a circle",
        rule="a wait counts signals of instructions that come earlier in the block",
        fix="synchronize the program again",
        location=issued.location,
    )
