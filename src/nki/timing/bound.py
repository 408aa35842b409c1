"""A time that no schedule of a program can beat under the same costs.

A segment takes at least as long as its busiest unit works, and at least as long as its longest chain of dependences;
loops add barriers. What the timeline adds beyond that is waiting: for units and ports that are shared, for activation
tables, for the clock of the Tensor engine, and for an order of instructions that could be better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.spec.queue import queue_class
from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.hardware import DMA, Hardware, hardware_of
from nki.timing.plan import trips_of
from nki.timing.recipe import MATMUL, TRANSFER, Recipe, Recipes

Dependences = Sequence[Sequence[int]]
"""For each instruction of a segment the earlier positions that must complete before it starts."""


def lower_bound(
    program: Program, target: Target, dependences: Sequence[Dependences], trips: Mapping[int, float] | None = None
) -> float:
    """ns that the program takes at least on one core.

    Args:
        program: scheduled or not; only the dependences count, and not its order.
        target: what it is timed for.
        dependences: of every segment, in the order of the walk over the program.
        trips: as for `timeline`.
    """
    return _Bound(target, dependences, trips or {}).block(program.body, 1.0)


class _Bound:
    def __init__(self, target: Target, dependences: Sequence[Dependences], trips: Mapping[int, float]) -> None:
        self._hardware: Hardware = hardware_of(target)
        self._recipes = Recipes(target, self._hardware)
        self._dependences = iter(dependences)
        self._trips = trips
        self._loops = 0

    def block(self, block: Block, entries: float) -> float:
        """A block that is run so often in all: ns for one run."""
        total = 0.0
        for part in _parts(block):
            if isinstance(part, list):
                recipes = [self._recipes.of(issued) for issued in part]
                needs = next(self._dependences)
                total += max(_busiest(recipes), _longest(part, recipes, needs))
            else:
                trips, _ = trips_of(part, self._trips.get(self._loops), entries)
                self._loops += 1
                body = self.block(part.body, entries * trips)
                total += self._hardware.barrier + trips * (body + self._hardware.barrier)
        return total


def _busiest(recipes: Sequence[Recipe]) -> float:
    """ns that the busiest unit works."""
    busy = [0.0] * len(UNITS)
    for recipe in recipes:
        for unit, ns in recipe.busy:
            busy[unit] += ns
        if recipe.kind == TRANSFER:
            busy[DMA] += recipe.work
    return max(busy)


def _longest(items: Sequence[Issued], recipes: Sequence[Recipe], needs: Dependences) -> float:
    """ns of the longest chain of dependences.

    An instruction of another queue follows when a result is visible. One of the same queue may follow as soon as the
    queue goes on, and transfers, which may be in the same queue, follow each other's data; then the time in which their
    engines begin one after the other is no part of them.
    """
    start, visible = [0.0] * len(items), [0.0] * len(items)
    for position, (issued, recipe) in enumerate(zip(items, recipes, strict=True)):
        queue, moved = queue_class(issued), 0.0
        for producer in needs[position]:
            other = recipes[producer]
            if recipe.kind == TRANSFER and other.kind == TRANSFER:
                moved = max(moved, visible[producer] - other.latency)
            elif queue_class(items[producer]) == queue:
                start[position] = max(start[position], start[producer] + _hold(other))
            else:
                start[position] = max(start[position], visible[producer] + other.signal)
        spared = max(0.0, recipe.skew)
        least = recipe.ns - spared
        visible[position] = max(start[position] + recipe.alone - spared, moved + least + recipe.latency)
    return max(visible, default=0.0)


def _hold(recipe: Recipe) -> float:
    """ns for which an instruction at least holds its queue."""
    return recipe.chain[0][1] if recipe.kind == MATMUL else sum(ns for _, ns, _ in recipe.chain)


def _parts(block: Block) -> Iterator[list[Issued] | ForLoop | WhileLoop]:
    """Runs of instructions, and loops."""
    items: list[Issued] = []
    for item in block.items:
        if isinstance(item, Issued):
            items.append(item)
        else:
            if items:
                yield items
                items = []
            yield item
    if items:
        yield items
