"""Scheduling: an order, queues and waits for the instructions of every segment, chosen on the timing model.

Two orders compete, that of the list scheduler and that of the kernel; the shorter one is taken, so that scheduling
never makes a kernel slower than it was written, as far as the model sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from nki.passes.context import Context, Pass
from nki.passes.dependences import Segment, dependences, segments_of
from nki.passes.list_schedule import Machine, Schedule, Task, in_order, list_schedule
from nki.passes.synchronize import synchronize
from nki.spec.cost import activation_table
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop
from nki.spec.queue import dma_queues, queue_class
from nki.target.model import Target
from nki.timing.cost import duration


class _Planned(NamedTuple):
    """A segment in its new order: original positions, and a `Sync` for each place."""

    order: list[int]
    syncs: list[Sync]


def tasks_of(items: Sequence[Issued], target: Target) -> list[Task]:
    """What the list scheduler sees of instructions."""
    return [Task(queue_class(i), *duration(i, target), activation_table(i.arguments) or "") for i in items]


def hardware(target: Target) -> Machine:
    """What the list scheduler knows of a target."""
    timing = target.timing
    return Machine(dma_queues(target), timing["activation_table_load_ns"], timing["semaphore_ns"])


def run(program: Program, context: Context) -> Program:
    """Reorder and synchronise every segment.

    Edges get new positions; the instructions of an ordered region may be apart now, so that edges keep their order.
    """
    machine = hardware(context.target)
    moved: dict[int, int] = {}
    plans: dict[tuple[int, int], _Planned] = {}
    for segment in segments_of(program):
        plan = _plan(segment, program, context.target, machine)
        plans[id(segment.block), segment.first] = plan
        for place, position in enumerate(plan.order):
            moved[segment.walk + position] = segment.walk + place
    ordered = {pair for first, after in program.fences for pair in pairwise(range(first, after))}
    edges = sorted((moved[producer], moved[consumer]) for producer, consumer in {*program.edges, *ordered})
    return replace(program, body=_rebuilt(program.body, plans), edges=edges, fences=[])


def _plan(segment: Segment, program: Program, target: Target, machine: Machine) -> _Planned:
    producers = dependences(segment.items, program, target, segment.edges, segment.fences)
    tasks = tasks_of(segment.items, target)
    best = _shorter(list_schedule(tasks, producers, machine), in_order(tasks, producers, machine))
    place = {position: index for index, position in enumerate(best.order)}
    synchronized = synchronize(
        [best.queues[position] for position in best.order],
        [[place[producer] for producer in producers[position]] for position in best.order],
    )
    return _Planned(best.order, synchronized.syncs)


def _shorter(scheduled: Schedule, written: Schedule) -> Schedule:
    return scheduled if scheduled.makespan < written.makespan else written


def _rebuilt(block: Block, plans: dict[tuple[int, int], _Planned]) -> Block:
    items: list[Issued | ForLoop | WhileLoop] = []
    syncs: list[Sync | None] = []
    position = 0
    while position < len(block.items):
        item = block.items[position]
        if isinstance(item, Issued):
            plan = plans[id(block), position]
            items += [block.items[position + offset] for offset in plan.order]
            syncs += plan.syncs
            position += len(plan.order)
        else:
            items.append(replace(item, body=_rebuilt(item.body, plans)))
            syncs.append(None)
            position += 1
    return Block(list(block.buffers), items, syncs)


PASS = Pass("schedule", "Order the instructions of each queue, and make queues wait for each other.", run)
