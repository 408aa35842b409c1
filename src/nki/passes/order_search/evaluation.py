"""Evaluation: what an order is worth, with addresses and with the best schedule that these allow."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nki.core.errors import VerificationError
from nki.passes.allocation.addresses import allocate
from nki.passes.analysis.dependences import Segment, dependences, segments_of
from nki.passes.context import Context
from nki.passes.editing.reorder import NewOrder, reordered
from nki.passes.order_search.candidates import Candidate, Order, Scheduled, Start
from nki.passes.order_search.choice import MOST_TIMED, shortest
from nki.passes.order_search.segment_schedules import SegmentSchedules, segment_schedules
from nki.passes.scheduling.list_schedule import Schedule
from nki.passes.scheduling.ready_list import NEVER
from nki.passes.scheduling.semaphores import synchronize
from nki.passes.scheduling.tasks import Tasks, machine_of
from nki.spec.program import Issued, Program, Sync
from nki.timing.loops import Spent, spent_by_segment
from nki.timing.plan import Ports, SegmentPlan
from nki.timing.recipe import TRANSFER, Recipe
from nki.timing.run import SegmentRun, least_ns, work_of
from nki.timing.state import SegmentState
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
        self._timed: Timed = {}

    def of(self, order: Order, limit: float = NEVER) -> Candidate | None:
        """The candidate that an order makes; None if its tensors have no place.

        Args:
            limit: ns of the best candidate so far. One that takes as long or longer need not be timed to its end: its
                makespan may be `NEVER`.
        """
        if order.positions not in self._known:
            self._known[order.positions] = self._evaluated(order, limit)
        return self._known[order.positions]

    def _evaluated(self, order: Order, limit: float) -> Candidate | None:
        start = self.start
        try:
            placed = allocate(self._ordered(order), self._context, start.layout)
        except VerificationError as error:
            self.failure = self.failure or error
            return None
        self.spent += self.instructions
        return Candidate(
            order, placed, scheduled(placed.program, self._context, self.tasks, limit=limit, timed=self._timed)
        )

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
    program: Program,
    context: Context,
    tasks: Tasks,
    schedules: SegmentSchedules = segment_schedules,
    *,
    limit: float = NEVER,
    timed: Timed | None = None,
) -> Scheduled:
    """A program with addresses, in the best schedule of each segment, and how long it takes.

    Segments are chosen one by one, because the loops between them are barriers.

    Args:
        program: its `placement` says which instructions share bytes.
        context: of the compilation.
        tasks: for its target.
        schedules: makes those among which is chosen.
        limit: ns from which on the program is of no use; it may have spent `NEVER` then.
        timed: what is known of segments of the same instructions, under limits that were no smaller.
    """
    timing = _Timing(program, context, tasks, {} if timed is None else timed)
    found = list(segments_of(program))
    whole = len(found) == 1 and len(found[0].items) == len(program.body.items)
    chosen = [timing.chosen(segment, schedules, limit, whole) for segment in found]
    estimate = sum(each.estimate for each in chosen)

    def make() -> Program:
        orders = {(id(s.block), s.first): each.order() for s, each in zip(found, chosen, strict=True)}
        return reordered(program, orders)

    if whole and chosen[0].spent is not None:
        return Scheduled(chosen[0].spent, estimate, make)
    made = make()  # loops have barriers and trips
    return Scheduled(spent_by(made, context.target, tasks.recipes), estimate, lambda: made)


class _Chosen(NamedTuple):
    """The schedule that was chosen for a segment.

    Attributes:
        estimate: the least one of all schedules of the segment.
        spent: by the chosen schedule, the segment by itself; None if nobody needs to know.
        producers: what each instruction depends on.
    """

    segment: Segment
    schedule: Schedule
    estimate: float
    spent: Spent | None
    producers: Sequence[Sequence[int]]

    def order(self) -> NewOrder:
        """The order with its waits."""
        return NewOrder(self.segment.walk, self.schedule.order, _syncs(self.producers, self.schedule))


Timed = dict[Hashable, Spent]
"""What segments spend by themselves, by all that this depends on: other addresses often allow the same schedule."""

_LOST = Spent(NEVER)
"""By a schedule that was given up."""


class _Timing:
    """A program with addresses whose segments are scheduled.

    Attributes:
        timed: what is known already.
        equal: see `shortest`.
    """

    def __init__(self, program: Program, context: Context, tasks: Tasks, timed: Timed) -> None:
        self._program, self._target, self._tasks = program, context.target, tasks
        self._machine = machine_of(context.target)
        self._equal = context.imitation.equal_orders
        self._timed = timed
        self._hardware = tasks.recipes.hardware
        self._ports = Ports(self._hardware, program.placement)
        self._number = {name: number for number, name in enumerate(self._hardware.queues)}

    def chosen(self, segment: Segment, schedules: SegmentSchedules, limit: float, whole: bool) -> _Chosen:
        """The best schedule of a segment.

        Args:
            limit: ns from which on a program that is one segment is of no use.
            whole: whether the program is nothing but the segment.
        """
        items, outlines = segment.items, self._tasks.outlines
        producers = dependences(items, self._program, self._target, segment.edges, segment.fences, outlines)
        found = schedules(self._tasks.of(items), producers, self._machine)
        estimates = [schedule.makespan for schedule in found]
        number, spent = 0, None
        if whole or len(found) > 1:
            all_spent = self._all_spent(items, found, producers, limit if whole else NEVER)
            number = shortest([each.ns for each in all_spent], estimates, len(items), self._equal)
            spent = all_spent[number]
        return _Chosen(segment, found[number], min(estimates), spent, producers)

    def _all_spent(
        self, items: Sequence[Issued], found: Sequence[Schedule], producers: Sequence[Sequence[int]], limit: float
    ) -> list[Spent]:
        """What each schedule of a segment spends; those that certainly are not chosen may be given up."""
        recipes = list(map(self._tasks.recipes.of, items))
        ports = list(map(self._ports.of, items, recipes))
        work = work_of(recipes, _tails(recipes, producers, found[0].queues))
        spent = [_LOST] * len(found)
        factor = self._equal if len(items) > MOST_TIMED else 1.0
        # The most promising one first, so that the others are given up early.
        for number in sorted(range(len(found)), key=lambda number: found[number].makespan):
            order = found[number].order
            plan = SegmentPlan(0, [items[at] for at in order], [recipes[at] for at in order])
            plan.ports = [ports[at] for at in order]
            spent[number] = self._spent(plan, found[number], producers, factor * limit, work)
            limit = min(limit, spent[number].ns)
        return spent

    def _spent(
        self,
        plan: SegmentPlan,
        schedule: Schedule,
        producers: Sequence[Sequence[int]],
        limit: float,
        work: Sequence[float],
    ) -> Spent:
        """What a segment spends by itself, or `_LOST`."""
        queues = [self._number[schedule.queues[at]] for at in schedule.order]
        awaited = _elsewhere(producers, schedule)
        key = None
        if len(queues) <= MOST_TIMED:  # larger ones have few candidates
            key = (tuple(map(id, plan.items)), tuple(queues), tuple(awaited), tuple(plan.ports))
        if key is not None and key in self._timed:
            return self._timed[key]
        plan.order(queues, awaited)
        run = SegmentRun(plan, self._hardware, self._target, SegmentState(), limit=limit, work=work)
        run.advance()
        spent = _LOST if run.lost else spent_by_segment(run)
        if key is not None:
            self._timed[key] = spent  # what is given up stays so: limits of later candidates are no larger
        return spent


def _tails(recipes: Sequence[Recipe], producers: Sequence[Sequence[int]], queues: Sequence[str]) -> list[float]:
    """For each instruction of a segment the ns from its end to the end of the segment, at least.

    Args:
        queues: of any schedule: only whether two instructions are transfers, or on one engine, makes a difference.
    """
    tails = [recipe.latency for recipe in recipes]
    kinds = ["" if recipe.kind == TRANSFER else queue for recipe, queue in zip(recipes, queues, strict=True)]
    for position in range(len(recipes) - 1, -1, -1):
        beyond = least_ns(recipes[position]) + tails[position]
        for producer in producers[position]:
            other = recipes[producer]
            # Two transfers may be in one queue, in which one follows the other without a signal.
            far = 0.0 if kinds[producer] == kinds[position] else other.latency + other.signal
            if far + beyond > tails[producer]:
                tails[producer] = far + beyond
    return tails


def _places(schedule: Schedule) -> list[int]:
    """The place of each instruction in the order of a schedule."""
    places = [0] * len(schedule.order)
    for place, position in enumerate(schedule.order):
        places[position] = place
    return places


def _elsewhere(producers: Sequence[Sequence[int]], schedule: Schedule) -> list[tuple[int, ...]]:
    """What each instruction depends on in other queues, by places in the order of a schedule."""
    places, queues = _places(schedule), schedule.queues
    found: list[tuple[int, ...]] = []
    for position in schedule.order:
        own = queues[position]
        found.append(tuple([places[producer] for producer in producers[position] if queues[producer] != own]))
    return found


def _syncs(producers: Sequence[Sequence[int]], schedule: Schedule) -> list[Sync]:
    """The waits that keep every dependence of a segment in the order of a schedule."""
    places = _places(schedule)
    queues = [schedule.queues[position] for position in schedule.order]
    return synchronize(queues, [[places[each] for each in producers[position]] for position in schedule.order]).syncs
