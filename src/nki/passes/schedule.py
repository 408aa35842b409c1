"""Scheduling: an order, queues and waits for the instructions of every segment, chosen on the timing model.

Two orders compete, that of the list scheduler and that of the kernel; the shorter one is taken, so that scheduling
never makes a kernel slower than it was written, as far as the model sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nki.passes.context import Context, Pass
from nki.passes.dependences import Segment, dependences, segments_of
from nki.passes.list_schedule import Machine, Schedule, Task, in_order, list_schedule
from nki.passes.reorder import NewOrder, reordered
from nki.passes.synchronize import synchronize
from nki.spec.cost import activation_table
from nki.spec.program import Issued, Program
from nki.spec.queue import dma_queues, queue_class
from nki.target.model import Target
from nki.timing.cost import duration


def tasks_of(items: Sequence[Issued], target: Target) -> list[Task]:
    """What the list scheduler sees of instructions."""
    return [Task(queue_class(i), *duration(i, target), activation_table(i.arguments) or "") for i in items]


def hardware(target: Target) -> Machine:
    """What the list scheduler knows of a target."""
    timing = target.timing
    return Machine(dma_queues(target), timing["activation_table_load_ns"], timing["semaphore_ns"])


def run(program: Program, context: Context) -> Program:
    """Reorder and synchronise every segment."""
    return _scheduled(program, context, _best)


def as_written(program: Program, context: Context) -> Program:
    """Synchronise every segment in the order that it has: what `run` is measured against."""
    return _scheduled(program, context, in_order)


Choice = Callable[[Sequence[Task], Sequence[Sequence[int]], Machine], Schedule]
"""A schedule for tasks with their producers on a machine."""


def _best(tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine) -> Schedule:
    return shorter(list_schedule(tasks, producers, machine), in_order(tasks, producers, machine))


def _scheduled(program: Program, context: Context, choice: Choice) -> Program:
    machine = hardware(context.target)
    orders = {
        (id(segment.block), segment.first): _ordered(segment, program, context.target, machine, choice)
        for segment in segments_of(program)
    }
    return reordered(program, orders)


def _ordered(segment: Segment, program: Program, target: Target, machine: Machine, choice: Choice) -> NewOrder:
    producers = dependences(segment.items, program, target, segment.edges, segment.fences)
    chosen = choice(tasks_of(segment.items, target), producers, machine)
    place = {position: index for index, position in enumerate(chosen.order)}
    synchronized = synchronize(
        [chosen.queues[position] for position in chosen.order],
        [[place[producer] for producer in producers[position]] for position in chosen.order],
    )
    return NewOrder(segment.walk, chosen.order, synchronized.syncs)


def shorter(scheduled: Schedule, written: Schedule) -> Schedule:
    """The better of two; what the kernel's author wrote if they are equal."""
    return scheduled if scheduled.makespan < written.makespan else written


PASS = Pass("schedule", "Order the instructions of each queue, and make queues wait for each other.", run)
