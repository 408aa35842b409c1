"""Tasks: what the list scheduler sees of instructions, and of the machine that they run on."""

from __future__ import annotations

from collections.abc import Sequence

from nki.passes.analysis.footprints import Outlines
from nki.passes.scheduling.list_schedule import Machine, Task
from nki.spec.cost import activation_table
from nki.spec.program import Issued
from nki.spec.queue import DMA, dma_queues, queue_class
from nki.target.model import Target
from nki.timing.cost import cost_of, duration
from nki.timing.hardware import hardware_of
from nki.timing.recipe import Recipe, Recipes


def machine_of(target: Target) -> Machine:
    """What the list scheduler knows of a target."""
    timing = target.timing
    return Machine(dma_queues(target), timing["activation_table_load_ns"], timing["semaphore_ns"])


class Tasks:
    """What the list scheduler and the timeline see of the instructions of a program.

    Costs do not depend on order or addresses, so that they are computed once for all candidates of a search.

    Attributes:
        recipes: for the timeline.
        outlines: for what depends on what.
    """

    def __init__(self, target: Target) -> None:
        self.recipes = Recipes(target, hardware_of(target))
        self.outlines = Outlines(target)
        self._target = target
        self._known: dict[int, tuple[Issued, Task]] = {}  # with the instruction, so that its id stays its own
        self._alike: dict[Recipe, Task] = {}

    def of(self, items: Sequence[Issued]) -> list[Task]:
        """One for each instruction."""
        known = self._known
        found = []
        for issued in items:
            seen = known.get(id(issued))
            if seen is None:
                seen = known[id(issued)] = issued, self._task(issued)
            found.append(seen[1])
        return found

    def _task(self, issued: Issued) -> Task:
        recipe = self.recipes.of(issued)  # one for all that cost the same
        found = self._alike.get(recipe)
        if found is None:
            found = self._alike[recipe] = _task(issued, self._target)
        return found


def _task(issued: Issued, target: Target) -> Task:
    queue = queue_class(issued)
    if queue == DMA:
        return Task(DMA, *duration(issued, target), "", *_sharing(issued, target))
    return Task(queue, *duration(issued, target), activation_table(issued.arguments, target) or "")


def _sharing(issued: Issued, target: Target) -> tuple[float, float]:
    """ns after which the next transfer finds bandwidth and the one who starts transfers free, and bandwidth alone."""
    *before, last = cost_of(issued, target)
    share = last.working(target.dma.aggregate_gbps)
    moves = min(share, last.ns - last.skew)
    return max(moves, *(step.ns for step in before), 0.0), moves
