"""What is known of a step of many ranks: its classes of ranks, its collectives, its critical path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Interval(NamedTuple):
    """Something that a rank does; times are ns from the start of the step."""

    name: str
    start_ns: float
    end_ns: float


class Communicated(NamedTuple):
    """A collective of a class of ranks.

    Attributes:
        collective: its number among `StepTimes.collectives`.
        ready_ns: when the ranks of the class were ready.
        start_ns, end_ns: when data began to move, and when they had come.
        exposed_ns: of that, in which the ranks did no work of their own.
        last: the class that was ready last.
        partners: classes that meet.
    """

    collective: int
    ready_ns: float
    start_ns: float
    end_ns: float
    exposed_ns: float
    last: int
    partners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankClass:
    """Ranks that have equal times.

    Attributes:
        ranks: their numbers, ascending.
        program: the rank whose program they have.
        slowdown: how many times as long their own work takes.
        end_ns: when they are done.
        work_ns: in which they work.
        hidden_ns: of that, in which a collective moves data as well.
        exposed_ns: in which a collective moves data, and they do not work.
        waiting_ns: in which they only wait for other ranks.
        idle_ns: everything else of the step: latencies, and after their end.
        work: from when to when they work.
        runs: their programs.
        communications: by the time at which they were ready.
    """

    ranks: tuple[int, ...]
    program: int
    slowdown: float
    end_ns: float
    work_ns: float
    hidden_ns: float
    exposed_ns: float
    waiting_ns: float
    idle_ns: float
    work: list[tuple[float, float]] = field(repr=False)
    runs: list[Interval] = field(repr=False)
    communications: list[Communicated] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Collective:
    """Collectives of a step that are alike: of one line or module, among as many ranks, of as many bytes.

    Attributes:
        name: of the instruction, or of the call.
        operation: one of `nki.topology.times.OPERATIONS`, or "send" or "receive".
        where: the module of the model, with * for the numbers of layers, or the line.
        nbytes: as `nki.topology.collective_time` takes them.
        group: ranks that meet.
        how: the algorithm.
        ns: of one, from when all ranks are there.
        count: of one rank, on average.
        communication_ns, exposed_ns, waiting_ns: of one rank, on average: all of them, in which it does not work, and
            in which it is ready and another one is not.
        critical_ns: on the critical path.
    """

    name: str
    operation: str
    where: str
    nbytes: int
    group: int
    how: str
    ns: float
    count: float
    communication_ns: float
    exposed_ns: float
    waiting_ns: float
    critical_ns: float


class PathPiece(NamedTuple):
    """An interval of the critical path: the lowest rank that it is on, and its collective or -1 for work."""

    start_ns: float
    end_ns: float
    rank: int
    collective: int


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """A step of many ranks in time, by the timing model.

    Attributes:
        name: of what was compiled.
        ranks: how many there are.
        instance: what they are cores of.
        target: that they were compiled for.
        makespan_ns: from the start to the end of the last rank.
        classes: by their lowest rank.
        collectives: those that the critical path spends most on first.
        path: without gaps, from 0 to the makespan.
        groups: for each of the collectives the lists of ranks that meet; of messages the sender and the receiver.
        notes: what the times leave out.
    """

    name: str
    ranks: int
    instance: str
    target: str
    makespan_ns: float
    classes: Sequence[RankClass]
    collectives: Sequence[Collective]
    path: Sequence[PathPiece]
    groups: Sequence[Sequence[tuple[int, ...]]]
    notes: Sequence[str] = ()

    @property
    def work_ns(self) -> float:
        """In which a rank works, on average; the same for the others."""
        return self._mean("work_ns")

    @property
    def hidden_ns(self) -> float:
        """Communication behind work."""
        return self._mean("hidden_ns")

    @property
    def exposed_ns(self) -> float:
        """Communication that nothing hides."""
        return self._mean("exposed_ns")

    @property
    def waiting_ns(self) -> float:
        """Waiting for other ranks."""
        return self._mean("waiting_ns")

    @property
    def idle_ns(self) -> float:
        """Neither work nor communication nor waiting."""
        return self._mean("idle_ns")

    @property
    def bound_by(self) -> Collective | None:
        """The collective that the critical path spends most on; None without any."""
        found = self.collectives[0] if self.collectives else None
        return found if found is not None and found.critical_ns > 0.0 else None

    def _mean(self, field: str) -> float:
        return sum(float(getattr(each, field)) * len(each.ranks) for each in self.classes) / self.ranks

    def class_of(self, rank: int) -> RankClass:
        """The class that a rank is in."""
        return next(each for each in self.classes if rank in each.ranks)


TIMES = ("work_ns", "hidden_ns", "exposed_ns", "waiting_ns", "idle_ns")
"""What the time of a rank is spent on; hidden time is a part of work."""
