"""The critical path through ranks: back from the end of the step, through meetings to whoever came last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nki.timing.ranks.core import EPS, RankCore, RankSegmentRun
from nki.timing.ranks.past import Arrival, Call, ClassPast, Met, Ran


class Piece(NamedTuple):
    """An interval of the path.

    Attributes:
        start, end: true ns.
        number: the class that it is on.
        call: the collective whose data move; None for a class's own work.
    """

    start: float
    end: float
    number: int
    call: Call | None


def critical_path(classes: Sequence[ClassPast]) -> list[Piece]:
    """Intervals without gaps from 0 to the end of the step."""
    return _Walk(classes).pieces()


class _Walk:
    """Back through a step."""

    def __init__(self, classes: Sequence[ClassPast]) -> None:
        self._classes = classes
        self._found: list[Piece] = []
        self._past = max(classes, key=lambda each: (each.end, -each.number))
        self._time = self._past.end

    def pieces(self) -> list[Piece]:
        """The path in the order of time."""
        task = self._ending(range(len(self._past.tasks)))
        while task >= 0:
            done = self._past.tasks[task]
            task = self._through_met(task, done) if isinstance(done, Met) else self._through_run(task, done)
        self._emit(0.0, None)
        self._found.reverse()
        return self._found

    def _emit(self, start: float, call: Call | None) -> None:
        if self._time > start:
            self._found.append(Piece(start, self._time, self._past.number, call))
            self._time = start

    def _ending(self, tasks: Sequence[int]) -> int:
        """The task of some that ended last; -1 for none."""
        return max(tasks, key=lambda task: (self._past.end_of(task), -task), default=-1)

    def _before(self, task: int) -> int:
        """What let a task begin."""
        return self._ending(self._past.before[task])

    def _through_met(self, task: int, met: Met) -> int:
        """Through a message to the rank that was the last to be ready for it."""
        self._emit(met.begun, (self._past.number, (task, 0, -1), 0))
        if met.arrivals:
            number, place, _ = met.last
            self._past, task = self._classes[number], place[0]
        return self._before(task)

    def _through_run(self, task: int, ran: Ran | None) -> int:
        """From the end of a program to its start, or to where another one was waited for; the task before that."""
        assert ran is not None, "the step is over"
        core = max(ran.cores, key=lambda each: each.end)
        stretch, position, shift = len(core.stretches) - 1, -1, ran.shift
        while stretch >= 0:
            here = core.stretches[stretch]
            start = core.true(here.at) + shift
            found = None if here.run is None else _meeting_before(here.run, position)
            if found is None:
                self._emit(start, None)
                stretch, position = stretch - 1, -1
                continue
            assert here.run is not None, "it has a meeting"
            self._emit(core.true(here.at + here.run.end[found]) + shift, None)
            met, call = _call_at(ran, core, here.run, found)
            self._emit(min(met.begun + shift, self._time), (call[0], (task, *call[1][1:]), call[2]))
            last = met.last
            arrival = met.arrivals[last]
            assert arrival.core is not None and arrival.joined is not None, "calls of programs meet calls of programs"
            if (last[0], last[1][0]) != (
                call[0],
                call[1][0],
            ):  # a program that runs again has the calls of the first time
                self._past, task = self._classes[last[0]], last[1][0]
                other = self._past.tasks[task]
                assert isinstance(other, Ran), "calls of programs meet calls of programs"
                ran, shift = other, other.shift
            core = arrival.core
            stretch = next(at for at, each in enumerate(core.stretches) if each.run is arrival.joined.run)
            position = arrival.joined.position - arrival.joined.run.plan.first
        return self._before(task)


def _call_at(ran: Ran, core: RankCore, run: RankSegmentRun, position: int) -> tuple[Met, Call]:
    for call, met in ran.met.items():
        arrival: Arrival = met.arrivals[call]
        if arrival.core is core and arrival.joined is not None:
            same = arrival.joined.run is run and arrival.joined.position == run.plan.first + position
            if same:
                return met, call
    raise AssertionError("a collective that moved data was met")


def _meeting_before(run: RankSegmentRun, position: int) -> int | None:
    """The last collective that an instruction had to wait for, directly or not; None if there is none.

    Args:
        position: in the segment, of a collective that waits for others; -1 for the end of the segment.
    """
    entered = position < 0
    if entered:
        position = max(range(len(run.visible)), key=lambda at: (run.visible[at], -at))
    before = _before_in_queue(run)
    for _ in range(4 * len(run.visible) + 4):  # steps lead to earlier times or causes; a circle would be of equal times
        if position < 0:
            return None
        if entered and position in run.joined_at:
            return position
        position, entered = _step_back(run, position, before), True
    return None


def _step_back(run: RankSegmentRun, position: int, before: Sequence[int]) -> int:
    """What let an instruction go on when it did; -1 if it began with the segment."""
    after = run.moved_after[position]
    if after >= 0:
        return after
    if run.start[position] > run.turn[position] + EPS and run.blocker[position] >= 0:
        return run.blocker[position]
    return before[position]


def _before_in_queue(run: RankSegmentRun) -> list[int]:
    before = [-1] * len(run.visible)
    for position, after in enumerate(run.plan.after):
        if after >= 0:
            before[after] = position
    return before
