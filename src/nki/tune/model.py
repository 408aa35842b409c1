"""What the timing model says of one candidate: a time that it cannot beat, from its trace, and its time, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki.compiler import CompileConfig
from nki.driver.compile import compiled
from nki.driver.compiled import Cache
from nki.driver.launch import Launch, launch_options, trace_only
from nki.driver.prepare import prepare
from nki.options import Options
from nki.passes import canonicalize
from nki.passes.context import Context
from nki.spec.program import Block, Issued, Program
from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.cores import timelines
from nki.timing.hardware import DMA, hardware_of
from nki.timing.plan import trips_of
from nki.timing.recipe import TRANSFER, Recipes

_NOTHING = 0.0


def least_ns(launch: Launch, arguments: Mapping[str, Any], target: Target, options: Options) -> float:
    """ns that the kernel takes at least: the work of its busiest unit, without compiling it.

    0 where the compiler may drop instructions, because their work is then no bound.

    Raises:
        NkiError: the kernel is refused.
    """
    config = launch.compile_config or CompileConfig()
    tracers = trace_only(launch, (), arguments, target, options)
    if config.dead_code_elim:
        return _NOTHING
    context = Context(target, launch_options(launch, options), config)
    return max(_busiest(canonicalize.run(tracer.program, context), target) for tracer in tracers)


def time_ns(
    launch: Launch, arguments: Mapping[str, Any], target: Target, options: Options, cache: Cache
) -> tuple[float, bool]:
    """ns that the compiled kernel takes on the slowest core, and whether trips of a loop are assumed.

    Raises:
        NkiError: the kernel is refused or cannot be compiled.
    """
    prepared = prepare(launch, (), arguments, options, "compiled", target=target.name, cache=cache)
    lines = timelines(compiled(prepared).programs, target)
    return max(line.makespan for line in lines), any(loop.assumed for line in lines for loop in line.loops)


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
