"""Parts of a program in time: segments and loops with their starts and ends, as the timeline has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nki.profiling.facts.timed_core import CoreFacts
from nki.timing.loops import LoopTime
from nki.timing.plan import BlockPlan, LoopPlan, SegmentPlan


class SegmentSpan(NamedTuple):
    """A segment from its start to its end."""

    plan: SegmentPlan
    start: float
    end: float


class LoopSpan(NamedTuple):
    """A loop.

    Attributes:
        start: when queues meet before it.
        first: when its first trip starts; `trip` is how long that takes with the barrier after it.
        end: of the last trip.
        whole: whether the first trip is a part of that time; a mean number of trips below 1 is shorter.
    """

    plan: LoopPlan
    time: LoopTime
    start: float
    first: float
    trip: float
    end: float
    whole: bool


Span = SegmentSpan | LoopSpan


def top(core: CoreFacts) -> list[Span]:
    """The parts of the whole program."""
    return list(spans(core, core.plan.body, 0.0, core.line.makespan))


def inside(core: CoreFacts, loop: LoopSpan) -> list[Span]:
    """The parts of the first trip of a loop."""
    return list(spans(core, loop.plan.body, loop.first, loop.first + loop.trip - core.plan.hardware.barrier))


def spans(core: CoreFacts, block: BlockPlan, start: float, end: float) -> Iterator[Span]:
    """The parts of a block that runs from `start` to `end` in its first run."""
    times = {loop.number: loop for loop in core.line.loops}
    parts = block.parts
    for number, part in enumerate(parts):
        after = _begin(core, parts[number + 1], times) if number + 1 < len(parts) else end
        if isinstance(part, LoopPlan):
            time = times[part.number]
            whole = part.trips >= 1.0
            yield LoopSpan(part, time, start, time.start, time.first_ns if whole else 0.0, after, whole)
        else:
            yield SegmentSpan(part, start, after)
        start = after


def _begin(core: CoreFacts, part: SegmentPlan | LoopPlan, times: dict[int, LoopTime]) -> float:
    """The first instruction of a queue is ready when its segment starts."""
    if isinstance(part, LoopPlan):
        return times[part.number].start - core.plan.hardware.barrier
    return min(core.turn[position] for position in range(part.first, part.first + len(part.items)))
