"""Scheduling: an order, queues and waits for the instructions of every segment, chosen on the timing model.

Orders of the list scheduler compete with that of the kernel; the shortest one on the timeline is taken, so that
scheduling never makes a kernel slower than it was written, as far as the model sees. Of larger segments, orders within
half a percent count as equally long, and the list scheduler's own estimate decides, as it does in a compiler that times
nothing. Of the tiled matmul of kernel-optimization.rst, Tensor is then busy for 88 % of the time, and for 81 % in the
order of the source, which is 0.3 % shorter; 87 % were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nki.passes.analysis.dependences import Segment, dependences, segments_of
from nki.passes.context import Context, Pass
from nki.passes.editing.reorder import NewOrder, reordered
from nki.passes.scheduling.list_schedule import Heuristic, Machine, Schedule, Task, in_order, list_schedule
from nki.passes.scheduling.semaphores import synchronize
from nki.spec.cost import activation_table
from nki.spec.program import Block, Issued, Program
from nki.spec.queue import DMA, dma_queues, queue_class
from nki.target.model import Target
from nki.timing.cost import Key, cost_of, duration, signature
from nki.timing.hardware import hardware_of
from nki.timing.loops import Clockwork
from nki.timing.plan import Planner
from nki.timing.recipe import Recipes
from nki.timing.state import State

MOST_TIMED = 900
"""Instructions of segments for which all ways of scheduling compete on the timeline; of larger ones fewer do."""
CLOSE = 1.15
"""Over the shortest one, by the scheduler's estimate: schedules of larger segments that the timeline compares."""

EQUAL = 1.005
"""Over the shortest one, on the timeline, whose errors are larger: orders of larger segments that are as good."""

PATIENT = Heuristic(patience=3000.0)
"""For segments with several groups: two loads of a table, and what they put off."""


def tasks_of(items: Sequence[Issued], target: Target) -> list[Task]:
    """What the list scheduler sees of instructions."""
    return Tasks(target).of(items)


class Tasks:
    """What the list scheduler and the timeline see of the instructions of a program, for all orders of it.

    Attributes:
        recipes: for the timeline.
    """

    def __init__(self, target: Target) -> None:
        self.recipes = Recipes(target, hardware_of(target))
        self._target = target
        self._known: dict[int, tuple[Issued, Task]] = {}
        self._alike: dict[Key, Task] = {}

    def of(self, items: Sequence[Issued]) -> list[Task]:
        """One for each instruction."""
        known = self._known
        for issued in items:
            if id(issued) not in known:
                known[id(issued)] = issued, self._task(issued)
        return [known[id(issued)][1] for issued in items]

    def _task(self, issued: Issued) -> Task:
        key = signature(issued)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = _task(issued, self._target)
        return found


def _task(issued: Issued, target: Target) -> Task:
    queue = queue_class(issued)
    if queue == DMA:
        return Task(DMA, *duration(issued, target), "", *_sharing(issued, target))
    return Task(queue, *duration(issued, target), activation_table(issued.arguments) or "")


def _sharing(issued: Issued, target: Target) -> tuple[float, float]:
    """ns after which the next transfer finds bandwidth and the one who starts transfers free, and bandwidth alone."""
    *before, last = cost_of(issued, target)
    share = max(last.occupied * last.ns, last.nbytes / target.dma.aggregate_gbps)
    moves = min(share, last.ns - last.skew)
    return max(moves, *(step.ns for step in before), 0.0), moves


def hardware(target: Target) -> Machine:
    """What the list scheduler knows of a target."""
    timing = target.timing
    return Machine(dma_queues(target), timing["activation_table_load_ns"], timing["semaphore_ns"])


def run(program: Program, context: Context) -> Program:
    """Reorder and synchronise every segment."""
    for number, (known, scheduled) in enumerate(context.foreseen):
        if known.body is program.body and known.placement is program.placement:
            del context.foreseen[number]
            return replace(scheduled, passed=program.passed)
    return foresee(program, context.target, Tasks(context.target)).program


class Foreseen(NamedTuple):
    """A scheduled program, its ns on the timeline, and those by the estimate of the list scheduler."""

    program: Program
    makespan: float
    estimate: float


def foresee(program: Program, target: Target, tasks: Tasks) -> Foreseen:
    """What `run` makes of a program, and how long that takes."""
    maker = _Maker(program, target, tasks)
    scheduled = maker.scheduled(_candidates)
    (length,) = maker.lengths if len(maker.lengths) == 1 else (None,)
    if length is None or len(scheduled.body.items) != maker.instructions:  # loops have barriers and trips
        length = makespan(scheduled, target, tasks.recipes)
    return Foreseen(scheduled, length, maker.estimate)


def makespan(program: Program, target: Target, recipes: Recipes | None = None) -> float:
    """That of `nki.timing.timeline.timeline`, without the times of the instructions; see `Planner` for `recipes`."""
    plan = Planner(program, target, None, recipes)
    spent, _ = Clockwork(plan, target).block(plan.body, State(), None)
    return spent.ns


Candidates = Callable[[Sequence[Task], Sequence[Sequence[int]], Machine], Sequence[Schedule]]
"""Schedules for tasks with their producers on a machine, those that are preferred first."""


def _candidates(tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine) -> list[Schedule]:
    """What the kernel's author wrote comes first: it stays unless another one is shorter."""
    found = [in_order(tasks, producers, machine)]
    heuristics = [Heuristic()]
    if len(tasks) <= MOST_TIMED:
        found.append(in_order(tasks, producers, machine, spread=False))
        heuristics.append(Heuristic(written=True))
    if len({task.group for task in tasks} - {""}) > 1:
        heuristics.append(PATIENT)
    for heuristic in heuristics:
        made = list_schedule(tasks, producers, machine, heuristic)
        if all(made[:2] != other[:2] for other in found):
            found.append(made)
    return found


class _Maker:
    """Schedules the segments of a program.

    Attributes:
        instructions: of all segments.
        lengths: ns of each segment by itself, or None if it was not timed.
        estimate: ns of all segments, by the estimates of their shortest schedules.
    """

    def __init__(self, program: Program, target: Target, tasks: Tasks) -> None:
        self._program, self._target, self._tasks = program, target, tasks
        self._machine = hardware(target)
        self.instructions = 0
        self.lengths: list[float | None] = []
        self.estimate = 0.0

    def scheduled(self, candidates: Candidates) -> Program:
        orders = {}
        for segment in segments_of(self._program):
            self.instructions += len(segment.items)
            orders[id(segment.block), segment.first] = self._ordered(segment, candidates)
        return reordered(self._program, orders)

    def _ordered(self, segment: Segment, candidates: Candidates) -> NewOrder:
        producers = dependences(segment.items, self._program, self._target, segment.edges, segment.fences)
        found = candidates(self._tasks.of(segment.items), producers, self._machine)
        shortest = min(schedule.makespan for schedule in found)
        self.estimate += shortest
        if len(segment.items) > MOST_TIMED:
            found = [schedule for schedule in found if schedule.makespan <= CLOSE * shortest]
        orders = [_synchronized(segment, producers, schedule) for schedule in found]
        if len(orders) == 1:
            self.lengths.append(None)
            return orders[0]
        lengths = [self._length(order, segment) for order in orders]
        number = chosen(lengths, [schedule.makespan for schedule in found], len(segment.items))
        self.lengths.append(lengths[number])
        return orders[number]

    def _length(self, order: NewOrder, segment: Segment) -> float:
        """ns of a segment by itself in an order."""
        block = Block([], [segment.items[position] for position in order.order], list(order.syncs or ()))
        return makespan(replace(self._program, body=block), self._target, self._tasks.recipes)


def chosen(lengths: Sequence[float], estimates: Sequence[float], instructions: int) -> int:
    """The number of the shortest order; of a larger segment, that of least estimate among those that are as good."""
    shortest = min(lengths)
    if instructions <= MOST_TIMED:
        return lengths.index(shortest)
    return min((estimates[number], number) for number, ns in enumerate(lengths) if ns <= EQUAL * shortest)[1]


def _synchronized(segment: Segment, producers: Sequence[Sequence[int]], schedule: Schedule) -> NewOrder:
    place = {position: index for index, position in enumerate(schedule.order)}
    synchronized = synchronize(
        [schedule.queues[position] for position in schedule.order],
        [[place[producer] for producer in producers[position]] for position in schedule.order],
    )
    return NewOrder(segment.walk, schedule.order, synchronized.syncs)


PASS = Pass("schedule", "Order the instructions of each queue, and make queues wait for each other.", run)
