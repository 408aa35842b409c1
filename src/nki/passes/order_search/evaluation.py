"""Evaluation: what an order is worth, with addresses and with the best schedule that these allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from nki.core.errors import VerificationError
from nki.passes.allocation.addresses import allocate
from nki.passes.analysis.dependences import Segment, dependences, segments_of
from nki.passes.context import Context
from nki.passes.editing.reorder import NewOrder, reordered
from nki.passes.order_search.candidates import Candidate, Order, Scheduled, Start
from nki.passes.order_search.choice import shortest
from nki.passes.order_search.segment_schedules import SegmentSchedules, segment_schedules
from nki.passes.scheduling.list_schedule import Machine, Schedule
from nki.passes.scheduling.semaphores import synchronize
from nki.passes.scheduling.tasks import Tasks, machine_of
from nki.spec.program import Block, Program
from nki.target.model import Target
from nki.timing.loops import Spent
from nki.timing.timeline import spent_by


class Evaluation:
    """The candidates of one start, each order of which is placed, scheduled and timed once.

    Attributes:
        start: whose orders are evaluated.
        target, tasks: of the compilation.
        instructions: of the start.
        spent: instructions of all orders together that could be placed: what the search has cost so far.
        failure: why the first order without a place has none; None if there was no such order.
    """

    def __init__(self, start: Start, context: Context, tasks: Tasks) -> None:
        self.start = start
        self.target = context.target
        self.tasks = tasks
        self.instructions = sum(1 for _ in start.program.body.walk())
        self.spent = 0
        self.failure: VerificationError | None = None
        self._context = context
        self._known: dict[tuple[tuple[int, ...], ...], Candidate | None] = {}

    def of(self, order: Order) -> Candidate | None:
        """The candidate that an order makes; None if its tensors have no place."""
        if order.positions not in self._known:
            self._known[order.positions] = self._evaluated(order)
        return self._known[order.positions]

    def _evaluated(self, order: Order) -> Candidate | None:
        start = self.start
        try:
            placed = allocate(self._ordered(order), self._context, start.layout, spilling=start.spilling)
        except VerificationError as error:
            self.failure = self.failure or error
            return None
        self.spent += self.instructions
        return Candidate(order, placed, scheduled(placed.program, self._context, self.tasks))

    def _ordered(self, order: Order) -> Program:
        if order.heuristic is None:
            return self.start.program
        program = replace(self.start.program, placement=None)
        orders = {
            (id(segment.block), segment.first): NewOrder(segment.walk, positions, None)
            for segment, positions in zip(segments_of(program), order.positions, strict=True)
        }
        return reordered(program, orders)


def scheduled(
    program: Program, context: Context, tasks: Tasks, schedules: SegmentSchedules = segment_schedules
) -> Scheduled:
    """A program with addresses, in the best schedule of each segment, and how long it takes.

    Segments are chosen one by one, because the loops between them are barriers.

    Args:
        program: its `placement` says which instructions share bytes.
        context: of the compilation.
        tasks: for its target.
        schedules: makes those among which is chosen.
    """
    target = context.target
    timing = _Timing(program, target, tasks, machine_of(target), context.imitation.equal_orders)
    found = list(segments_of(program))
    chosen = [timing.chosen(segment, schedules) for segment in found]
    orders = {(id(s.block), s.first): each.order for s, each in zip(found, chosen, strict=True)}
    result = reordered(program, orders)
    spent = chosen[0].spent if len(found) == 1 and len(found[0].items) == len(result.body.items) else None
    if spent is None:  # loops have barriers and trips
        spent = spent_by(result, target, tasks.recipes)
    return Scheduled(result, spent, sum(each.estimate for each in chosen))


class _Chosen(NamedTuple):
    """The schedule that was chosen for a segment.

    Attributes:
        estimate: the least one of all schedules of the segment.
        spent: by the chosen schedule, the segment by itself; None if there was no other one to compare with.
    """

    order: NewOrder
    estimate: float
    spent: Spent | None


@dataclass(frozen=True, slots=True)
class _Timing:
    """A program with addresses whose segments are scheduled.

    Attributes:
        equal: see `shortest`.
    """

    program: Program
    target: Target
    tasks: Tasks
    machine: Machine
    equal: float

    def chosen(self, segment: Segment, schedules: SegmentSchedules) -> _Chosen:
        """The best schedule of a segment."""
        producers = dependences(segment.items, self.program, self.target, segment.edges, segment.fences)
        found = schedules(self.tasks.of(segment.items), producers, self.machine)
        orders = [_synchronized(segment, producers, schedule) for schedule in found]
        estimates = [schedule.makespan for schedule in found]
        if len(orders) == 1:
            return _Chosen(orders[0], estimates[0], None)
        spent = [self._spent(order, segment) for order in orders]
        number = shortest([each.ns for each in spent], estimates, len(segment.items), self.equal)
        return _Chosen(orders[number], min(estimates), spent[number])

    def _spent(self, order: NewOrder, segment: Segment) -> Spent:
        """What a segment by itself spends in an order."""
        block = Block([], [segment.items[position] for position in order.order], list(order.syncs or ()))
        return spent_by(replace(self.program, body=block), self.target, self.tasks.recipes)


def _synchronized(segment: Segment, producers: Sequence[Sequence[int]], schedule: Schedule) -> NewOrder:
    """A segment in the order of a schedule, with the waits that keep every dependence."""
    place = {position: index for index, position in enumerate(schedule.order)}
    synchronized = synchronize(
        [schedule.queues[position] for position in schedule.order],
        [[place[producer] for producer in producers[position]] for position in schedule.order],
    )
    return NewOrder(segment.walk, schedule.order, synchronized.syncs)
