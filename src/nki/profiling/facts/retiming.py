"""The timeline of a changed program: the same instructions in the same order, with other costs, some of them left out.

A compiler may find a better order for the changed program; `nki.profiling.facts.least_time` says how much better that
could be.
"""

from __future__ import annotations

from collections.abc import Set

from nki.profiling.facts.change import Change, Needs
from nki.profiling.facts.timed_core import CoreFacts
from nki.spec.step import UNITS
from nki.timing.loops import Clockwork
from nki.timing.plan import BlockPlan, LoopPlan, SegmentPlan
from nki.timing.recipe import TRANSFER, Recipe
from nki.timing.state import SegmentState


class Retiming:
    """The timeline of one core after changes, as if it were alone."""

    def __init__(self, core: CoreFacts, needs: Needs) -> None:
        self._core, self._needs = core, needs

    def ns(self, change: Change) -> float:
        """ns that the changed program takes in the order of the compiled one."""
        work = Clockwork(self._core.plan, self._core.target)
        spent, _ = work.block(self._block(self._core.plan.body, change), SegmentState(), None)
        return spent.ns

    def _block(self, block: BlockPlan, change: Change) -> BlockPlan:
        made = BlockPlan(block.number)
        for part in block.parts:
            made.parts.append(self._loop(part, change) if isinstance(part, LoopPlan) else self._segment(part, change))
        return made

    def _loop(self, loop: LoopPlan, change: Change) -> LoopPlan:
        made = LoopPlan(loop.number, loop.trips, loop.assumed)
        made.first, made.last, made.body = loop.first, loop.last, self._block(loop.body, change)
        return made

    def _segment(self, plan: SegmentPlan, change: Change) -> SegmentPlan:
        """The segment without what is gone, each instruction in the queue of who works for it now."""
        first = plan.first
        changed = change.gone.keys() | change.recipes.keys()
        kept = [local for local in range(len(plan.items)) if first + local not in change.gone]
        number = {local: position for position, local in enumerate(kept)}
        recipes = [change.recipes.get(first + local, plan.recipes[local]) for local in kept]
        made = SegmentPlan(first, [change.items.get(first + at, plan.items[at]) for at in kept], recipes)
        made.boxes = plan.boxes
        queues = [
            plan.queue[local] if recipe is plan.recipes[local] else self._queue(recipe, plan.queue[local])
            for local, recipe in zip(kept, recipes, strict=True)
        ]
        made.ports = [() if change.no_ports else plan.ports[local] for local in kept]
        producers = []
        for local, queue in zip(kept, queues, strict=True):
            waits = [number[p] for p in self._waits(plan, local, change, changed) if p in number]
            producers.append(tuple(p for p in waits if queues[p] != queue))
        made.order(queues, producers)
        return made

    def _queue(self, recipe: Recipe, before: int) -> int:
        """The queue of an instruction that costs something else, perhaps on another engine."""
        return before if recipe.kind == TRANSFER else self._core.plan.hardware.queues.index(UNITS[recipe.unit])

    def _waits(self, plan: SegmentPlan, local: int, change: Change, changed: Set[int]) -> list[int]:
        """Positions in the segment of those that it waits for.

        Signals that stand for others as well, those of what is gone or moved, are replaced by what the data needs; so
        is the order of a queue that an instruction left.
        """
        first, at, producers = plan.first, plan.first + local, plan.producers[local]
        touched = at in changed or not changed.isdisjoint(self._needs.logical[at])
        if change.own_tiles or touched or any(first + p in changed for p in producers):
            return [p - first for p in self._needs.of(at, change) if p >= first]
        return list(producers)
