"""What has been simulated of a step: programs that ran, and meetings that took place. Times are true ns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nki.timing.bandwidth import NEVER
from nki.timing.ranks.classes import Meeting
from nki.timing.ranks.core import Joined, RankCore
from nki.timing.ranks.sites import Place
from nki.timing.ranks.step import Message, RankProgram, Run

Call = tuple[int, Place, int]
"""A class, the place of a call in its program, and how often that was made before."""


class Arrival(NamedTuple):
    """When a call was ready to meet others; of calls in programs also on which core."""

    at: float
    core: RankCore | None = None
    joined: Joined | None = None


class Met(NamedTuple):
    """A meeting that took place.

    Attributes:
        meeting: which one.
        arrivals: of all that met.
        begun: when the last one was ready.
        end: when the data had come, on an otherwise idle core.
    """

    meeting: Meeting
    arrivals: Mapping[Call, Arrival]
    begun: float
    end: float

    @property
    def last(self) -> Call:
        """Who came last; of several the one with the lowest number."""
        return min(self.arrivals, key=lambda call: (-self.arrivals[call].at, call))


class Ran(NamedTuple):
    """A program that ran.

    Attributes:
        start, end: of all cores.
        cores: that ran it, or the same at another time.
        met: its calls, and what they met.
    """

    start: float
    end: float
    cores: tuple[RankCore, ...]
    met: Mapping[Call, Met]

    @property
    def shift(self) -> float:
        """How much later than its cores and meetings say it ran."""
        return self.start - self.cores[0].begun


class ClassPast:
    """What the ranks of a class have done.

    Attributes:
        number: of the class.
        slow: true ns for one of its own.
        tasks: of its program; None for one that is not over.
        cores: of the program that runs now, which is task `running` and has met `met`.
        said: messages that wait for others, or are over.
    """

    def __init__(self, number: int, program: RankProgram, slow: float) -> None:
        self.number, self.program, self.slow = number, program, slow
        self.tasks: list[Ran | Met | None] = [None] * len(program.tasks)
        self.before = [_before(program.tasks, number) for number in range(len(program.tasks))]
        self.cores: tuple[RankCore, ...] = ()
        self.running = -1
        self.met: dict[Call, Met] = {}
        self.said: set[int] = set()
        self._counts: dict[Place, int] = {}

    def call(self, place: Place) -> Call:
        """The next call at a place."""
        number = self._counts.get(place, 0)
        self._counts[place] = number + 1
        return self.number, place, number

    def ready(self, task: int) -> float:
        """When all that a task waits for is over; NEVER if nobody knows yet."""
        return max((self.end_of(each) for each in self.before[task]), default=0.0)

    def end_of(self, task: int) -> float:
        """When a task is over; NEVER if nobody knows yet."""
        found = self.tasks[task]
        return NEVER if found is None else found.end

    @property
    def end(self) -> float:
        """When all tasks are over."""
        return max(map(self.end_of, range(len(self.tasks))), default=0.0)


def _before(tasks: tuple[Run | Message, ...], number: int) -> tuple[int, ...]:
    """What a task waits for: what it names, and the one before it that is of its kind."""
    kinds = [None if isinstance(task, Run) else (task.operation, task.ranks) for task in tasks[: number + 1]]
    last = next((at for at in range(number - 1, -1, -1) if kinds[at] == kinds[number]), None)
    return (*tasks[number].after, *(() if last is None else (last,)))
