"""The programs of several cores in time, which meet where instructions wait for the other core.

Each core has its own queues, engines and DMA engines; a meeting starts on all cores when the last one has come. Cores
are simulated side by side, always the one whose next event is first, so that meetings fall into the right order. What
contains no meeting is timed as on a single core. A loop with meetings is timed trip by trip: only `STEADY_TRIPS` if all
cores have the same loops around the same number of meetings, the others being copies of the last; else all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from nki.core.errors import VerificationError
from nki.spec.program import Program
from nki.target.model import Target
from nki.timing.bandwidth import NEVER
from nki.timing.loops import Clockwork, Spent
from nki.timing.plan import BlockPlan, LoopPlan, SegmentPlan, TimingPlanner
from nki.timing.run import SegmentRun
from nki.timing.state import SegmentState
from nki.timing.timeline import Timeline, spent_by, timeline, timeline_of

STEADY_TRIPS = 4
"""Trips of a loop with meetings after which both cores are taken to run in step."""


def timelines(
    programs: Sequence[Program], target: Target, trips: Sequence[Mapping[int, float]] | None = None
) -> tuple[Timeline, ...]:
    """The timelines of all cores of a launch, in the order of the programs.

    Args:
        programs: synchronized, one for each core.
        target: what they are timed for.
        trips: for each core, as for `timeline`.

    Raises:
        VerificationError: as `timeline`, or a core waits for a meeting to which another one does not come
            (``timeline.meeting``).
    """
    counted: Sequence[Mapping[int, float]] = [{} for _ in programs] if trips is None else trips
    if len(programs) == 1:
        return (timeline(programs[0], target, counted[0]),)
    cores = _timed(programs, target, counted)
    return tuple(timeline_of(core.plan, target, core.work.records, core.spent) for core in cores)


def spent_by_cores(programs: Sequence[Program], target: Target) -> tuple[Spent, ...]:
    """What the cores of a launch spend, as `timelines` has it, without the times of their instructions."""
    if len(programs) == 1:
        return (spent_by(programs[0], target),)
    return tuple(core.spent for core in _timed(programs, target, [{} for _ in programs]))


def _timed(
    programs: Sequence[Program], target: Target, counted: Sequence[Mapping[int, float]]
) -> Sequence[CoreTimeline]:
    """All cores, side by side to the end of their programs."""
    plans = [TimingPlanner(program, target, counts) for program, counts in zip(programs, counted, strict=True)]
    in_step = len({_skeleton(plan.body) for plan in plans}) == 1
    cores = [CoreTimeline(plan, target, in_step) for plan in plans]
    _run(cores)
    return cores


class CoreTimeline:
    """One core on its way through its program.

    Attributes:
        run: the segment that it is in; `base` is when that started.
        waiting: meetings that it has come to.
        spent: time and work of the whole program, once it is over.
    """

    def __init__(self, plan: TimingPlanner, target: Target, in_step: bool) -> None:
        self.plan, self.target, self.in_step = plan, target, in_step
        self.work = Clockwork(plan, target)
        self.run: SegmentRun | None = None
        self.base = 0.0
        self.waiting: deque[tuple[float, int]] = deque()
        self.spent = Spent()
        self._walk = self._whole()
        self.go_on()

    @property
    def next(self) -> float:
        """When something happens next on it."""
        return NEVER if self.run is None else self.base + self.run.next

    def go_on(self) -> None:
        """Come to the next segment with meetings, or to the end."""
        self.run = next(self._walk, None)

    def advance(self, until: float) -> None:
        """Simulate up to a time, or to a meeting."""
        assert self.run is not None, "the program is not over"
        self.run.advance(max(until - self.base, self.run.next))  # rounding must not keep it from its next event
        if self.run.arrived:
            self.waiting.append(self.run.arrived.pop())

    def _whole(self) -> Generator[SegmentRun, None, None]:
        self.spent, _ = yield from self._block(self.plan.body, SegmentState(), 0.0, True)

    def _block(
        self, block: BlockPlan, state: SegmentState, at: float, first: bool
    ) -> Generator[SegmentRun, None, tuple[Spent, SegmentState]]:
        """One run of a block from a time on; `first` says that it is recorded."""
        spent = Spent()
        for part in block.parts:
            when = at + spent.ns
            if isinstance(part, LoopPlan) and self.stops_in(part.body):
                found, state = yield from self._loop(part, state, when, first)
            elif isinstance(part, LoopPlan) or not self.stops_in(part):
                found, state = self.work.part(part, state, when if first else None)
            else:
                run = self.segment(part, state)
                self.base = when
                yield run
                found, state = self.work.finish(run, when if first else None)
            self.over_part(part, when, found.ns)
            spent = spent.plus(found)
        return spent, state

    def stops_in(self, plan: SegmentPlan | BlockPlan) -> bool:
        """Whether something is met in it, so that it is simulated step by step."""
        return plan.meets > 0

    def over_part(self, part: SegmentPlan | LoopPlan, at: float, ns: float) -> None:
        """Hear of every part that has run from a time on; of loops without meetings as a whole."""

    def segment(self, plan: SegmentPlan, state: SegmentState) -> SegmentRun:
        """What simulates a segment with meetings."""
        return SegmentRun(plan, self.work.hardware, self.target, state, alone=False)

    def _loop(
        self, loop: LoopPlan, state: SegmentState, at: float, first: bool
    ) -> Generator[SegmentRun, None, tuple[Spent, SegmentState]]:
        pause = Spent(self.work.hardware.barrier)
        total, trips = pause, []
        for number in range(min(int(loop.trips), STEADY_TRIPS) if self.in_step else int(loop.trips)):
            spent, state = yield from self._block(loop.body, state, at + total.ns, first and number == 0)
            trips.append(spent.plus(pause))
            total = total.plus(trips[-1])
        if trips:
            total = total.plus(trips[-1], loop.trips - len(trips))
        if first:
            self.work.note(loop, trips, at + pause.ns)
        return total, state


def _run(cores: Sequence[CoreTimeline]) -> None:
    """Side by side to the end of all programs."""
    while active := [core for core in cores if core.run is not None]:
        through = [core for core in active if core.next == NEVER and not core.waiting]
        if through:
            through[0].go_on()
            continue
        core = min(active, key=lambda item: item.next)
        if core.next == NEVER:
            raise _alone(core)
        others = min((other.next for other in active if other is not core), default=NEVER)
        core.advance(others)
        _meet(cores)


def _meet(cores: Sequence[CoreTimeline]) -> None:
    """If all cores have come to their next meeting, it starts."""
    if all(core.waiting for core in cores):
        now = max(core.base + core.waiting[0][0] for core in cores)
        for core in cores:
            _, position = core.waiting.popleft()
            assert core.run is not None, "a core that waits is in a segment"
            core.run.met(now - core.base, position)


def _alone(core: CoreTimeline) -> VerificationError:
    assert core.run is not None, "a core that waits is in a segment"
    issued = core.run.plan.items[core.waiting[0][1]]
    return VerificationError(
        "timeline.meeting",
        f"{issued.instruction.label} waits for another core that does not come",
        rule="all cores of a kernel come to the same meetings in the same order",
        fix="issue it on both cores, and give trip counts of the same run for both",
        location=issued.location,
    )


def _skeleton(block: BlockPlan) -> tuple[Any, ...]:
    """The meetings of a block, and the loops around them with their trips."""
    found: list[Any] = []
    for part in block.parts:
        if isinstance(part, LoopPlan):
            if part.body.meets:
                found.append((part.trips, _skeleton(part.body)))
        elif part.meets:
            found.append(part.meets)
    return tuple(found)
