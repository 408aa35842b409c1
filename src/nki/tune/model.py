"""What the timing model says of one candidate: a time that it cannot beat, from what runs, and its time, compiled."""

from __future__ import annotations

from nki.driver.measure import Question, times_of
from nki.spec.program import Block, Issued, Program
from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.hardware import DMA, hardware_of
from nki.timing.plan import trips_of
from nki.timing.recipe import TRANSFER, Recipes


def least_ns(question: Question) -> float:
    """ns that a call takes at least: the work of its busiest unit, without an order of its instructions."""
    target = question.prepared.target
    return max(_busiest(program, target) for program in question.asked.programs)


def time_ns(question: Question) -> tuple[float, bool]:
    """ns that a compiled call takes on the slowest core, and whether trips of a loop are assumed.

    Raises:
        NkiError: the kernel cannot be compiled.
    """
    times = times_of(question)
    return max(each.spent.ns for each in times), any(each.assumed for each in times)


def _busiest(program: Program, target: Target) -> float:
    """ns of the busiest unit, all trips of loops counted; loops of unknown trips as one."""
    hardware = hardware_of(target)
    recipes = Recipes(target, hardware)
    busy = [0.0] * len(UNITS)
    loops = 0

    def add(block: Block, runs: float) -> None:
        nonlocal loops
        for item in block.items:
            if isinstance(item, Issued):
                recipe = recipes.of(item)
                for unit, ns in recipe.busy:
                    busy[unit] += ns * runs
                if recipe.kind == TRANSFER:
                    busy[DMA] += recipe.work * runs
            else:
                trips, _ = trips_of(item, None, runs)
                loops += 1
                add(item.body, runs * trips)

    add(program.body, 1.0)
    return max(busy)
