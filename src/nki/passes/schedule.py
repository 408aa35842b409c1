"""Scheduling: an order, queues and waits for the instructions of every segment, chosen on the timing model.

Orders of the list scheduler compete with that of the kernel; the shortest one on the timeline is taken, so that
scheduling never makes a kernel slower than it was written, as far as the model sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from nki.passes.context import Context, Pass
from nki.passes.dependences import Segment, dependences, segments_of
from nki.passes.list_schedule import Machine, Manner, Schedule, Task, in_order, list_schedule
from nki.passes.reorder import NewOrder, reordered
from nki.passes.synchronize import synchronize
from nki.spec.cost import activation_table
from nki.spec.program import Block, Issued, Program
from nki.spec.queue import DMA, dma_queues, queue_class
from nki.target.model import Target
from nki.timing.cost import cost_of, duration
from nki.timing.timeline import timeline

MOST_TIMED = 2000
"""Instructions of segments whose orders are timed on the timeline; the scheduler's estimate does for larger ones."""

PATIENT = Manner(patience=3000.0)
"""For segments with several groups: two loads of a table, and what they put off."""


def tasks_of(items: Sequence[Issued], target: Target) -> list[Task]:
    """What the list scheduler sees of instructions."""
    return [
        Task(DMA, *duration(i, target), "", _interval(i, target))
        if queue_class(i) == DMA
        else Task(queue_class(i), *duration(i, target), activation_table(i.arguments) or "")
        for i in items
    ]


def _interval(issued: Issued, target: Target) -> float:
    """ns after which the next transfer finds bandwidth and the one who starts transfers free."""
    steps = cost_of(issued, target)
    moved = max(steps[-1].nbytes, steps[-1].descriptors * target.dma.overhead_bound_bytes)
    return max(moved / target.dma.aggregate_gbps, *(step.ns for step in steps[:-1]), 0.0)


def hardware(target: Target) -> Machine:
    """What the list scheduler knows of a target."""
    timing = target.timing
    return Machine(dma_queues(target), timing["activation_table_load_ns"], timing["semaphore_ns"])


def run(program: Program, context: Context) -> Program:
    """Reorder and synchronise every segment."""
    return _scheduled(program, context, _candidates)


def as_written(program: Program, context: Context) -> Program:
    """Synchronise every segment in the order that it has: what `run` is measured against."""
    return _scheduled(program, context, lambda *circumstances: [in_order(*circumstances)])


Candidates = Callable[[Sequence[Task], Sequence[Sequence[int]], Machine], Sequence[Schedule]]
"""Schedules for tasks with their producers on a machine, those that are preferred first."""


def _candidates(tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine) -> list[Schedule]:
    """What the kernel's author wrote comes first: it stays unless another one is shorter."""
    manners = [Manner()]
    if len(tasks) <= MOST_TIMED and len({task.group for task in tasks} - {""}) > 1:
        manners.append(PATIENT)
    return [in_order(tasks, producers, machine), *(list_schedule(tasks, producers, machine, m) for m in manners)]


def _scheduled(program: Program, context: Context, candidates: Candidates) -> Program:
    machine = hardware(context.target)
    orders = {
        (id(segment.block), segment.first): _ordered(segment, program, context.target, machine, candidates)
        for segment in segments_of(program)
    }
    return reordered(program, orders)


def _ordered(segment: Segment, program: Program, target: Target, machine: Machine, candidates: Candidates) -> NewOrder:
    producers = dependences(segment.items, program, target, segment.edges, segment.fences)
    found = candidates(tasks_of(segment.items, target), producers, machine)
    if len(segment.items) > MOST_TIMED:
        found = [reduce(lambda best, other: shorter(other, best), found)]
    orders = [_synchronized(segment, producers, schedule) for schedule in found]
    if len(orders) == 1:
        return orders[0]
    return min(orders, key=lambda order: _length(order, segment, program, target))


def shorter(scheduled: Schedule, written: Schedule) -> Schedule:
    """The better of two; what the kernel's author wrote if they are equal."""
    return scheduled if scheduled.makespan < written.makespan else written


def _synchronized(segment: Segment, producers: Sequence[Sequence[int]], schedule: Schedule) -> NewOrder:
    place = {position: index for index, position in enumerate(schedule.order)}
    synchronized = synchronize(
        [schedule.queues[position] for position in schedule.order],
        [[place[producer] for producer in producers[position]] for position in schedule.order],
    )
    return NewOrder(segment.walk, schedule.order, synchronized.syncs)


def _length(order: NewOrder, segment: Segment, program: Program, target: Target) -> float:
    """ns of a segment by itself in an order."""
    block = Block([], [segment.items[position] for position in order.order], list(order.syncs or ()))
    return timeline(replace(program, body=block), target).makespan


PASS = Pass("schedule", "Order the instructions of each queue, and make queues wait for each other.", run)
