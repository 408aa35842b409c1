"""What the ranks of a step do: programs of the device one after another, and messages between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki.core.source import UNKNOWN, Location
from nki.spec.model_kernels import CoreKernels
from nki.spec.program import Program


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A compiled program, which begins when the one before it and all tasks of `after` are over.

    Attributes:
        programs: one for each core.
        name: of the graph or kernel.
        after: tasks that it waits for, by position.
        kernels: of a model, by core; () for a kernel.
    """

    programs: tuple[Program, ...]
    name: str
    after: tuple[int, ...] = ()
    kernels: tuple[CoreKernels, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A collective between programs; those of the same ranks happen one after another.

    Attributes:
        operation: one of `nki.topology.times.OPERATIONS`, or "send" and "receive", of which two are one message.
        nbytes: as `nki.topology.collective_time` takes them.
        ranks: of its group, as they count in the launch; of "send" and "receive" the sender and the receiver.
        name: for people.
        after: tasks that it waits for, by position.
        location: the line of the call.
    """

    operation: str
    nbytes: int
    ranks: tuple[int, ...]
    name: str
    after: tuple[int, ...] = ()
    location: Location = UNKNOWN


Task = Run | Message


@dataclass(frozen=True, slots=True, eq=False)
class RankProgram:
    """What one rank does.

    Attributes:
        rank: which rank it was compiled as; others that do the same have its groups and partners, moved along.
        tasks: in the order in which they were called.
    """

    rank: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What all ranks do.

    Attributes:
        ranks: how many there are.
        programs: that differ.
        of: the number of each rank's program.
        slowdown: how many times as long a rank takes for its own work; ranks that are not named take 1.
    """

    ranks: int
    programs: tuple[RankProgram, ...]
    of: Sequence[int]
    slowdown: dict[int, float] = field(default_factory=dict)


def step_of(programs: Sequence[RankProgram], ranks: int, slowdown: dict[int, float] | None = None) -> Step:
    """A step in which each rank does what the nearest rank below it that was compiled does, or the first of them."""
    known = sorted(programs, key=lambda each: each.rank)
    of, at = [], 0
    for rank in range(ranks):
        while at + 1 < len(known) and known[at + 1].rank <= rank:
            at += 1
        of.append(at)
    return Step(ranks, tuple(known), of, dict(slowdown or {}))
