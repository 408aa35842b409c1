"""Candidates: an order of a program's instructions with addresses, a schedule and the time that it takes.

All are records that nobody changes: what a step finds out is in what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nki.passes.allocation.addresses import EVERYWHERE, Layout
from nki.passes.context import PassResult
from nki.passes.scheduling.list_schedule import Heuristic
from nki.passes.scheduling.ready_list import NEVER
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.timing.loops import Spent


class Start(NamedTuple):
    """What orders are looked for.

    Attributes:
        program: computes what the kernel does, if its instructions run one after the other.
        layout: where in SBUF its tensors may lie.
        findings: of the tensors that wait elsewhere in it; empty if none had to.
    """

    program: Program
    layout: Layout = EVERYWHERE
    findings: tuple[Finding, ...] = ()


class Order(NamedTuple):
    """An order of the instructions of a start, before it has addresses.

    Attributes:
        positions: for each segment its instructions in that order, by their positions in the start.
        heuristic: how the list scheduler made it; None for the order of the start itself.
        promise: ns that the program would take in it if addresses cost nothing, as the list scheduler estimates.
    """

    positions: tuple[tuple[int, ...], ...]
    heuristic: Heuristic | None = None
    promise: float = NEVER


class Scheduled:
    """A program whose instructions have their final order, queues and waits.

    Attributes:
        spent: on the timeline.
        estimate: ns of all segments as the list scheduler estimates them.
    """

    __slots__ = ("_made", "_make", "estimate", "spent")

    def __init__(self, spent: Spent, estimate: float, make: Callable[[], Program]) -> None:
        self.spent, self.estimate, self._make = spent, estimate, make
        self._made: Program | None = None

    def program(self) -> Program:
        """The program, made when it is asked for: most of those that a search finds are not taken."""
        if self._made is None:
            self._made = self._make()
        return self._made


class Candidate(NamedTuple):
    """An order that has a place in memory.

    Attributes:
        order: for which the addresses were chosen.
        placed: the program in that order with its `placement`, and what allocation has to say.
        schedule: of the placed program: its segments may be in other orders again, which the addresses allow.
    """

    order: Order
    placed: PassResult
    schedule: Scheduled

    @property
    def makespan(self) -> float:
        """ns on the timeline."""
        return self.schedule.spent.ns

    @property
    def result(self) -> PassResult:
        """What the pass that allocates hands on: the placed program and, for the next pass, its schedule."""
        return PassResult(self.placed.program, self.placed.findings, self.schedule.program, self.schedule.spent)
