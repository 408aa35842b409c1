"""Where a program meets other ranks: each collective in it, with its groups and its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nki.core.source import Location
from nki.spec.cost_collective import copy_ns, moved_by
from nki.target.model import Target
from nki.timing.ranks.groups import Lists, groups_among
from nki.timing.ranks.step import Message, RankProgram, Run, Step
from nki.topology import Instance, collective_time

Place = tuple[int, int, int]
"""Task, core, and position in the program's walk; of a message the task, 0 and -1."""

Channel = tuple[str, tuple[int, ...]]
"""Who meets: the core of each rank and the ranks, or "pair" and the sender and the receiver."""


class Site(NamedTuple):
    """A call that meets other ranks.

    Attributes:
        place: of the call.
        operation, nbytes: see `nki.spec.cost_collective.Moved`.
        name: for people.
        ns: from when all ranks are there until its data has come.
        how: the algorithm in words.
        groups: the ranks that each rank meets; () for none.
        pair: of a message what to add to the number of a rank for the sender and for the receiver; else None.
        location: the line of the call.
        module: of a model the path of the module that calls it, or the class of the model itself; else empty.
    """

    place: Place
    operation: str
    nbytes: int
    name: str
    ns: float
    how: str
    groups: tuple[tuple[int, ...], ...]
    pair: tuple[int, int] | None
    location: Location
    module: str = ""

    def channel(self, rank: int) -> Channel | None:
        """Whom a rank meets here; None if nobody."""
        if self.pair is not None:
            return "pair", (rank + self.pair[0], rank + self.pair[1])
        group = self.groups[rank]
        return (f"core {self.place[1]}", group) if len(group) > 1 else None


class Sites:
    """The sites of the programs of a step, on an instance."""

    def __init__(self, step: Step, instance: Instance, target: Target) -> None:
        self._step, self._instance, self._target = step, instance, target
        self._times: dict[tuple[str, int, Lists], tuple[float, str]] = {}
        having: list[list[int]] = [[] for _ in step.programs]
        for rank, number in enumerate(step.of):
            having[number].append(rank)
        self.of_program = [
            tuple(self._sites(program, ranks)) for program, ranks in zip(step.programs, having, strict=True)
        ]

    def _sites(self, program: RankProgram, having: Sequence[int]) -> Iterator[Site]:
        for number, task in enumerate(program.tasks):
            if isinstance(task, Message):
                yield self._message(number, task, program, having)
            else:
                yield from self._in_run(number, task, having)

    def _message(self, number: int, task: Message, program: RankProgram, having: Sequence[int]) -> Site:
        place = (number, 0, -1)
        if task.operation in ("send", "receive"):
            pair = (task.ranks[0] - program.rank, task.ranks[1] - program.rank)
            lists = tuple((rank + pair[0], rank + pair[1]) for rank in having)
            ns, how = self._time("permute", task.nbytes, lists)
            return Site(place, "send", task.nbytes, task.name, ns, how, (), pair, task.location)
        groups = groups_among((task.ranks,), self._step.ranks, False, having, task.name, task.location)
        ns, how = self._time(task.operation, task.nbytes, _distinct(groups, having))
        return Site(place, task.operation, task.nbytes, task.name, ns, how, groups, None, task.location)

    def _in_run(self, number: int, task: Run, having: Sequence[int]) -> Iterator[Site]:
        for core, program in enumerate(task.programs):
            for position, issued in enumerate(program.body.walk()):
                moved = moved_by(issued)
                if moved is None:
                    continue
                name, ranks = issued.instruction.name, self._step.ranks
                groups = groups_among(moved.lists, ranks, moved.whole, having, name, issued.location)
                lists = _distinct(groups, having)
                ns, how = self._time(moved.operation, moved.nbytes, lists)
                place, module = (number, core, position), _module_at(task, core, position)
                yield Site(place, moved.operation, moved.nbytes, name, ns, how, groups, None, issued.location, module)

    def _time(self, operation: str, nbytes: int, lists: Lists) -> tuple[float, str]:
        key = operation, nbytes, lists
        found = self._times.get(key)
        if found is None:
            time = collective_time(operation, nbytes, lists, self._instance, self._target)
            ns = time.ns if time.terms else copy_ns(nbytes, self._target) if lists else 0.0
            how = ", ".join(f"{term.algorithm} ({term.where}, {term.hops} hops)" for term in time.terms)
            found = self._times[key] = ns, how
        return found


def _module_at(run: Run, core: int, position: int) -> str:
    """The path of the innermost module that a kernel of a model is for."""
    for call in run.kernels[core] if run.kernels else ():
        if call.first <= position < call.after:
            modules = [part.origin.modules[-1] for part in call.parts if part.origin.modules]
            return (modules[0].path or f"({modules[0].kind})") if modules else ""
    return ""


def _distinct(groups: Sequence[tuple[int, ...]], having: Sequence[int]) -> Lists:
    """The groups of some ranks, each once."""
    return tuple(dict.fromkeys(groups[rank] for rank in having if groups[rank]))
