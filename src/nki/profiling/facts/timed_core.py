"""One core's program in time: the timeline, and what follows from it for each instruction.

The timeline says when an instruction started and left its unit. Here is added when a transfer's trigger ended and its
data began to move, when each queue went on, and which of a wait was the loading of an activation table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nki.passes.analysis.dependences import dependences, segments_of
from nki.spec.program import Issued, Program
from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.plan import BlockPlan, LoopPlan, SegmentPlan, TimingPlanner
from nki.timing.recipe import MATMUL, TRANSFER, Recipe
from nki.timing.state import CAUSES
from nki.timing.timeline import Timeline

WAIT, UNIT, PORT, OPERAND, TABLE, CORE = (CAUSES.index(name) for name in CAUSES[1:])
EPS = 1e-6
"""ns; times that are closer than this are the same."""


@dataclass(slots=True)
class CoreFacts:
    """One core's program in time. Lists are by position in ``program.body.walk()``; times in ns.

    Attributes:
        arrival: when a transfer's trigger has reached the DMA; other instructions: their start.
        move: when its data begin to move, or its multiplication; other instructions: their start.
        release: when its queue turned to the next instruction.
        table: the part of its wait that was the loading of an activation table.
        before: the instruction before it in its queue and segment, or -1.
        moved: the transfer that moved before this one in its queue, or -1.
        signals: producers whose signals it waits for.
        needs: earlier instructions that must complete before it.
        ran: whether it ever runs.
        runs: how often it does.
    """

    number: int
    program: Program
    target: Target
    line: Timeline
    plan: TimingPlanner
    items: list[Issued]
    recipes: list[Recipe]
    start: list[float]
    end: list[float]
    visible: list[float]
    turn: list[float]
    cause: list[int]
    blocker: list[int]
    queue: list[int]
    arrival: list[float]
    move: list[float]
    release: list[float]
    table: list[float]
    before: list[int]
    moved: list[int]
    signals: list[tuple[int, ...]]
    needs: list[tuple[int, ...]]
    ran: list[bool]
    runs: list[float]

    def transfers(self) -> Iterator[int]:
        """Positions of all transfers that run."""
        return (at for at, recipe in enumerate(self.recipes) if recipe.kind == TRANSFER and self.ran[at])

    def unit(self, position: int) -> str:
        """The unit that works for an instruction: an engine, or dma."""
        return UNITS[self.recipes[position].unit]

    def issued(self, position: int) -> float:
        """When the unit that starts a transfer could go on."""
        return self.start[position] + sum(ns for _, ns, _ in self.recipes[position].chain)

    def trigger(self, position: int) -> str:
        """The unit that starts a transfer, or ""."""
        recipe = self.recipes[position]
        return UNITS[recipe.chain[0][0]] if recipe.kind == TRANSFER and recipe.chain else ""


def core_of(
    number: int,
    program: Program,
    target: Target,
    line: Timeline,
    trips: Mapping[int, float] | None = None,
    needs: list[tuple[int, ...]] | None = None,
) -> CoreFacts:
    """A core from its synchronized program and its timeline, which was made with these trips.

    `needs` are those of the same program, if they are known: no time changes them.
    """
    plan = TimingPlanner(program, target, trips)
    items = list(program.body.walk())
    parts = list(segments(plan.body))
    recipes = [recipe for segment in parts for recipe in segment.recipes]
    start, turn, end = (_finite(values) for values in (line.start, line.turn, line.end))
    core = CoreFacts(
        number=number,
        program=program,
        target=target,
        line=line,
        plan=plan,
        items=items,
        recipes=recipes,
        start=start,
        end=end,
        visible=_finite(line.visible),
        turn=turn,
        cause=line.cause.tolist(),
        blocker=line.blocker.tolist(),
        queue=line.queue.tolist(),
        arrival=list(start),
        move=list(start),
        release=list(end),
        table=[0.0] * len(items),
        before=[-1] * len(items),
        moved=[-1] * len(items),
        signals=[()] * len(items),
        needs=_needs(program, target, len(items)) if needs is None else needs,
        ran=(~np.isnan(line.start)).tolist(),
        runs=line.runs.tolist(),
    )
    for segment in parts:
        _order(core, segment)
        _transfers(core, segment)
        _parts_of_time(core, segment)
    return core


def _needs(program: Program, target: Target, count: int) -> list[tuple[int, ...]]:
    """What must complete before each instruction."""
    needs: list[tuple[int, ...]] = [()] * count
    for found in segments_of(program):
        here = dependences(found.items, program, target, found.edges, found.fences)
        needs[found.walk : found.walk + len(here)] = [tuple(found.walk + p for p in each) for each in here]
    return needs


def _parts_of_time(core: CoreFacts, segment: SegmentPlan) -> None:
    """From when products multiply, behind the loading of weights, and how long tables of functions are loaded."""
    for position in range(segment.first, segment.first + len(segment.items)):
        if core.recipes[position].kind == MATMUL:
            before = core.before[position]
            free = core.end[before] if before >= 0 else 0.0
            core.move[position] = min(max(multiplies_from(core, position), free), core.end[position])
        if core.cause[position] == TABLE:
            waited = core.start[position] - core.turn[position]
            core.table[position] = min(core.plan.hardware.table_load, waited)


def _finite(values: np.ndarray) -> list[float]:
    found: list[float] = np.nan_to_num(values, nan=0.0).tolist()
    return found


def segments(block: BlockPlan) -> Iterator[SegmentPlan]:
    """All segments, loop bodies once, in the order of the walk."""
    for part in block.parts:
        if isinstance(part, LoopPlan):
            yield from segments(part.body)
        else:
            yield part


def _order(core: CoreFacts, segment: SegmentPlan) -> None:
    """Who follows whom in a queue, and the producers of each."""
    first = segment.first
    for local, after in enumerate(segment.after):
        position = first + local
        core.signals[position] = tuple(first + p for p in segment.producers[local])
        if after >= 0:
            core.before[first + after] = position
            core.release[position] = core.turn[first + after]
        elif segment.recipes[local].kind == TRANSFER and segment.recipes[local].chain:
            core.release[position] = core.issued(position)


def _transfers(core: CoreFacts, segment: SegmentPlan) -> None:
    """When triggers arrive and data begin to move: after the transfer before, and after operands of the same queue."""
    queues: dict[int, list[tuple[float, int]]] = {}
    for local, recipe in enumerate(segment.recipes):
        position = segment.first + local
        if recipe.kind == TRANSFER and core.ran[position]:
            arrival = core.issued(position) + (recipe.chain[-1][2] if recipe.chain else 0.0)
            core.arrival[position] = arrival
            queues.setdefault(core.queue[position], []).append((core.end[position], position))
    for queue in queues.values():
        last = -1
        for _, position in sorted(queue):
            begin = core.arrival[position]
            if last >= 0:
                begin = max(begin, core.end[last])
                core.moved[position] = last
            for producer in core.needs[position]:
                if core.queue[producer] == core.queue[position]:
                    begin = max(begin, core.end[producer] + core.recipes[producer].latency)
            core.move[position] = min(begin, core.end[position])
            last = position


def multiplies_from(core: CoreFacts, position: int) -> float:
    """When a multiplication could begin for all that its weights and its queue know."""
    (_, load, depth), _ = core.recipes[position].chain
    return core.start[position] + load + depth


def is_matmul(core: CoreFacts, position: int) -> bool:
    """Whether an instruction loads weights and multiplies."""
    return core.recipes[position].kind == MATMUL


def is_transfer(core: CoreFacts, position: int) -> bool:
    """Whether an instruction moves data by DMA."""
    return core.recipes[position].kind == TRANSFER
