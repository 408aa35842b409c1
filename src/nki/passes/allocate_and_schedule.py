"""Allocation for the order in which a program will run: tensors that will be in use together get bytes of their own.

An allocation for the order in which a kernel was written gives the same bytes to tensors that follow each other, and
the scheduler cannot bring their instructions together any more. So segments are put into the order that the scheduler
would like best, and addresses are chosen for that. The further instructions move ahead, the more is live at once;
orders with a smaller window are tried as well, and what takes least time with addresses is chosen. Its schedule is kept
for the pass that follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from nki.compiler import AddressRotation
from nki.core.errors import VerificationError
from nki.passes.allocation import addresses
from nki.passes.allocation.partition_halves import upper_half
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.context import Context, Pass
from nki.passes.editing.reorder import NewOrder, reordered
from nki.passes.schedule import MOST_TIMED, PATIENT, Foreseen, Tasks, foresee, hardware
from nki.passes.scheduling.list_schedule import Heuristic, Schedule, list_schedule, schedule_within
from nki.passes.scheduling.lower_bound import about_least
from nki.passes.scheduling.pressure_reordering import relieved
from nki.passes.scheduling.psum_pressure import psum_needs
from nki.passes.scheduling.ready_list import NEVER
from nki.spec.program import Program
from nki.spec.queue import DMA
from nki.target.model import Target

HEURISTICS = (
    Heuristic(window=400, spare=1),
    Heuristic(spare=1),
    Heuristic(window=64),
    Heuristic(window=112, written=True),
    Heuristic(),
    PATIENT,
    PATIENT._replace(window=16),
    Heuristic(window=128, written=True),
    Heuristic(window=128),
    Heuristic(window=24),
    Heuristic(window=48),
    Heuristic(written=True),
    Heuristic(window=16),
    Heuristic(window=32),
    PATIENT._replace(window=128),
    PATIENT._replace(window=24),
    PATIENT._replace(window=32),
    Heuristic(window=64, written=True),
    Heuristic(window=24, written=True),
    Heuristic(window=32, written=True),
)
"""Heuristics of the list scheduler that are tried, the most promising ones first."""
FEW_WITH_SUMS = Heuristic(window=400, spare=1), Heuristic(spare=1)
FEW_WITHOUT = (Heuristic(window=112, written=True),)
"""Those for large programs that use PSUM and those that do not; the one that promises most is tried."""
MOST_TRIED = 20_000
"""Instructions of programs for which other orders are tried; larger ones take the order in which they were written."""
SMALL = 16
"""Instructions of segments in which there is nothing to gain."""
EFFORT = 1900
"""Instructions of all orders together after which no further one is tried."""
ENOUGH = 1.002
"""Makespan over about the least one with which no further order is tried."""
AHEAD = 0.5
"""Of SBUF, what running ahead may take; a program that needs more as it is written gets all of it.

The profiles of the Mamba tutorial (nki/guides/tutorials/fused_mamba.rst) stay near half of it, also where loads come
late for lack of room (mamba_v1_profile_4k_chan_sb.png: 51 %) and where tensors spill ("peaking at merely 50%").
"""
BUSY_ENOUGH = 1.01
"""The same over the work of the busiest queue, for large programs; what is left is its start and its end."""


def run(program: Program, context: Context) -> Program:
    """The program with its `placement`, in an order that may differ from the one that came in.

    With `AddressRotation.DISABLE` tensors are packed tightly for the order in which the kernel was written. Where that
    order needs more than there is, whatever the configuration, tensors of few partitions lie side by side if that is
    enough (see `beside`), or an order is looked for that needs less (see `relief`), or that does with both.

    Raises:
        VerificationError: see `allocate.run`; of the order in which the kernel was written.
    """
    fitting = replace(context, config=replace(context.config, spill=False))
    try:
        return _arranged(program, fitting)
    except VerificationError as error:
        if error.code != "memory.capacity":
            raise
        for other, where in _others(program, fitting):
            with suppress(VerificationError):
                return _arranged(other, where)
        if not context.config.spill:
            raise
    for other in relieved(program, context.target):
        with suppress(VerificationError):
            return _arranged(other, context)
    return addresses.run(program, context)


def _others(program: Program, context: Context) -> Iterator[tuple[Program, Context]]:
    """What may fit although the written order does not: tensors side by side, other orders, and both."""
    upper = upper_half(program, context)
    if upper:
        yield program, replace(context, upper=upper)
    others = []
    for other in relieved(program, context.target):
        others.append(other)
        yield other, context
    for other in others:
        upper = upper_half(other, context)
        if upper:
            yield other, replace(context, upper=upper)


def _arranged(program: Program, context: Context) -> Program:
    """As `run`, of no other order than those of the scheduler."""
    count = sum(1 for _ in program.body.walk())
    if context.config.address_rotation is AddressRotation.DISABLE or count > MOST_TRIED:
        return addresses.run(program, context)
    if all(segment.after - segment.first <= SMALL for segment in segments_of(program)):
        return addresses.run(program, context)
    contest = _begun(program, context)
    if count > MOST_TIMED:
        _few(contest, program)
    else:
        _many(contest, program)
    best, found = contest.winner()
    context.foreseen.append((best, found.program))
    return best


def _begun(program: Program, context: Context) -> _Contest:
    """A contest with the written order in it: in a part of SBUF, and if it has no place there, in all of it."""
    contest = _Contest(replace(context, share=AHEAD))
    contest.enter(program)
    if not contest.effort:
        contest = _Contest(context)
        contest.enter(program)
    return contest


def _many(contest: _Contest, program: Program) -> None:
    """Try one order after the other until there were enough, or one is good enough."""
    orders = _Orders(program, contest.target, contest.tasks)
    enough = ENOUGH * orders.least()
    for order in orders.of(HEURISTICS):
        if contest.effort >= EFFORT or contest.makespan <= enough:
            return
        contest.enter(order.program)


def _few(contest: _Contest, program: Program) -> None:
    """Try the order that promises most, if that is more than the written one gives; the next one if it has no place."""
    if contest.estimate <= BUSY_ENOUGH * _work(program, contest.tasks):
        return
    orders = _Orders(program, contest.target, contest.tasks)
    before = contest.effort
    few = FEW_WITH_SUMS if orders.sums else FEW_WITHOUT
    for order in sorted(orders.of(few), key=lambda order: order.promise):
        if contest.effort > before or order.promise >= contest.estimate:
            return
        contest.enter(order.program)


def _work(program: Program, tasks: Tasks) -> float:
    """ns for which the busiest queue works, as the list scheduler sees it; loops count as nothing."""
    work: dict[str, float] = {}
    for segment in segments_of(program):
        for task in tasks.of(segment.items):
            work[task.queue] = work.get(task.queue, 0.0) + (task.interval if task.queue == DMA else task.busy)
    return max(work.values(), default=0.0)


class _Contest:
    """Orders with addresses, the best one of which wins.

    Attributes:
        target, tasks: of the program.
        effort: instructions of all orders that could be placed.
    """

    def __init__(self, context: Context) -> None:
        self.target = context.target
        self.tasks = Tasks(context.target)
        self.effort = 0
        self._context = context
        self._best: tuple[Program, Foreseen] | None = None
        self._failure: VerificationError | None = None

    @property
    def makespan(self) -> float:
        """ns of the best one; infinity if none could be placed."""
        return self._best[1].makespan if self._best else NEVER

    @property
    def estimate(self) -> float:
        """The same, as the list scheduler estimates it."""
        return self._best[1].estimate if self._best else NEVER

    def enter(self, program: Program) -> None:
        """Choose addresses for a program and see how long it takes."""
        notes = self._context.notes
        noted = len(notes)
        try:
            placed = addresses.run(program, self._context)
        except VerificationError as error:
            self._failure = self._failure or error
            return
        self.effort += sum(1 for _ in program.body.walk())
        found = foresee(placed, self.target, self.tasks)
        if found.makespan < self.makespan:
            self._best = placed, found
        else:
            del notes[noted:]

    def winner(self) -> tuple[Program, Foreseen]:
        """The best one.

        Raises:
            VerificationError: why the first one could not be placed, if none could.
        """
        if self._best is None:
            assert self._failure is not None, "something was entered"
            raise self._failure
        return self._best


class _Order(NamedTuple):
    """A program in an order, and the ns that it would take if addresses cost nothing, as the scheduler estimates it."""

    program: Program
    promise: float


class _Orders:
    """Orders for a program, chosen without regard to addresses.

    Attributes:
        sums: whether it has tensors in PSUM that get an address.
    """

    def __init__(self, program: Program, target: Target, tasks: Tasks) -> None:
        self._program = replace(program, placement=None)
        self._machine = hardware(target)
        found = list(segments_of(self._program))
        needs = [dependences(each.items, self._program, target, each.edges, each.fences) for each in found]
        psum = psum_needs(found, needs, target)
        self._segments = list(zip(found, needs, map(tasks.of, (each.items for each in found)), psum, strict=True))
        self.sums = any(each is not None for each in psum)

    def least(self) -> float:
        """ns that the program takes about at least; 0 if it has loops."""
        if len(self._segments) != 1:
            return 0.0
        ((segment, needs, seen, _),) = self._segments
        if len(segment.items) != len(self._program.body.items):
            return 0.0
        return about_least(seen, needs, self._machine.signal)

    def of(self, heuristics: Sequence[Heuristic]) -> Iterator[_Order]:
        """Different orders of the scheduler."""
        grouped = any(len({task.group for task in seen} - {""}) > 1 for _, _, seen, _ in self._segments)
        known = set()
        for heuristic in heuristics:
            if (heuristic.patience and not grouped) or (heuristic.spare and not self.sums):
                continue
            schedules = self._schedules(heuristic)
            key = tuple(tuple(schedule.order) for schedule in schedules)
            if schedules and key not in known:
                known.add(key)
                yield self._order(schedules)

    def _schedules(self, heuristic: Heuristic) -> list[Schedule]:
        """One for every segment; none if the scheduler found no order for which PSUM suffices."""
        found = []
        for _, producers, seen, psum in self._segments:
            schedule: Schedule | None
            if heuristic.spare and psum is not None:
                schedule = schedule_within(seen, producers, self._machine, heuristic, psum)
            else:
                schedule = list_schedule(seen, producers, self._machine, heuristic)
            if schedule is None:
                return []
            found.append(schedule)
        return found

    def _order(self, schedules: Sequence[Schedule]) -> _Order:
        orders = {
            (id(segment.block), segment.first): NewOrder(segment.walk, schedule.order, None)
            for (segment, *_), schedule in zip(self._segments, schedules, strict=True)
        }
        return _Order(reordered(self._program, orders), sum(schedule.makespan for schedule in schedules))


PASS = Pass("allocate", addresses.PASS.summary, run)
