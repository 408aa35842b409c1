"""The timeline of a step: for each class of ranks when it works, when it communicates and when it waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nki.target.model import Target
from nki.timing.ranks.classes import Classes, classes_of
from nki.timing.ranks.core import union
from nki.timing.ranks.past import Call, ClassPast, Met, Ran
from nki.timing.ranks.path import Piece, critical_path
from nki.timing.ranks.simulate import simulate
from nki.timing.ranks.sites import Place, Site, Sites
from nki.timing.ranks.step import Step
from nki.topology import Instance


class Communication(NamedTuple):
    """One collective or message of a rank; times are ns from the start of the step.

    Attributes:
        call: which one.
        site: what it is.
        partners: classes that it meets.
        ready: when the rank was ready for it.
        start: when the last rank was, and data began to move.
        end: when they had come.
        last: the class that came last.
    """

    call: Call
    site: Site
    partners: tuple[int, ...]
    ready: float
    start: float
    end: float
    last: int


class Running(NamedTuple):
    """A program of a rank, by the number of its task."""

    task: int
    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class ClassTimeline:
    """A class of ranks in time.

    Attributes:
        ranks: that are in it.
        program: the number of their program.
        slow: how many times as long they take for their own work.
        end: ns until all of their tasks are over.
        work: rows of start and end: when an engine or a transfer of their own works, disjoint and ascending.
        runs: their programs, in time.
        communications: by the time at which they were ready.
    """

    ranks: tuple[int, ...]
    program: int
    slow: float
    end: float
    work: np.ndarray
    runs: tuple[Running, ...]
    communications: tuple[Communication, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeline:
    """A step of many ranks in time.

    Attributes:
        ranks: how many there are.
        instance: what they are cores of.
        target: name of the target.
        makespan: ns from the start to the end of the last rank.
        classes: ranks that cannot be told apart.
        of: the class of each rank.
        path: the critical path.
    """

    ranks: int
    instance: Instance
    target: str
    makespan: float
    classes: tuple[ClassTimeline, ...]
    of: tuple[int, ...]
    path: tuple[Piece, ...]


def step_timeline(step: Step, instance: Instance, target: Target, *, apart: bool = False) -> StepTimeline:
    """The timeline of a step.

    Args:
        step: programs, which are synchronized, and who has which.
        instance: what the ranks are cores of, one after another.
        target: that the programs were compiled for.
        apart: simulate each rank, also those that cannot be told apart.

    Raises:
        LaunchError: ranks do not fit together (``step.groups``, ``step.mismatch``, ``step.deadlock``).
        VerificationError: as `nki.timing.cores.timelines`.
    """
    sites = Sites(step, instance, target).of_program
    classes = classes_of(step, sites, apart)
    pasts = simulate(step, classes, target)
    return StepTimeline(
        ranks=step.ranks,
        instance=instance,
        target=target.name,
        makespan=max(past.end for past in pasts),
        classes=tuple(_timeline(past, step, sites, classes) for past in pasts),
        of=classes.of,
        path=tuple(critical_path(pasts)),
    )


def _timeline(past: ClassPast, step: Step, sites: Sequence[Sequence[Site]], classes: Classes) -> ClassTimeline:
    ranks = classes.members[past.number]
    number = step.of[ranks[0]]
    known = {site.place: site for site in sites[number]}
    ran = [(task, each) for task, each in enumerate(past.tasks) if isinstance(each, Ran)]
    found = [*_said(past, known), *(each for task, run in ran for each in _called(task, run, known))]
    work = [
        core.begun + core.slow * (stretch.at + stretch.work) + run.shift
        for _, run in ran
        for core in run.cores
        for stretch in core.stretches
    ]
    return ClassTimeline(
        ranks=ranks,
        program=number,
        slow=past.slow,
        end=past.end,
        work=union(np.concatenate(work)) if work else np.empty((0, 2)),
        runs=tuple(Running(task, past.program.tasks[task].name, run.start, run.end) for task, run in ran),
        communications=tuple(sorted(found, key=lambda each: (each.ready, each.call))),
    )


def _said(past: ClassPast, sites: Mapping[Place, Site]) -> Iterator[Communication]:
    for task, met in enumerate(past.tasks):
        if isinstance(met, Met) and met.arrivals:
            call = next(each for each in met.arrivals if each[0] == past.number and each[1][0] == task)
            ready = met.arrivals[call].at
            yield Communication(call, sites[call[1]], _partners(met), ready, met.begun, met.end, met.last[0])


def _called(task: int, ran: Ran, sites: Mapping[Place, Site]) -> Iterator[Communication]:
    """The calls of a program; of one that ran before at the time at which it runs now."""
    for call, met in ran.met.items():
        arrival = met.arrivals[call]
        assert arrival.core is not None and arrival.joined is not None, "a call of a program"
        run, base = arrival.joined.run, arrival.joined.base
        end = arrival.core.true(base + run.end[arrival.joined.position - run.plan.first])
        place = (task, *call[1][1:])
        shift = ran.shift
        yield Communication(
            (call[0], place, call[2]),
            sites[place],
            _partners(met),
            arrival.at + shift,
            met.begun + shift,
            end + shift,
            met.last[0],
        )


def _partners(met: Met) -> tuple[int, ...]:
    return tuple(sorted({number for number, _ in met.meeting.participants}))
