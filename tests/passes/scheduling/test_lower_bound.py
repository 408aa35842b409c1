"""The least time of the benchmark of schedules: no schedule beats it, and it is right about orders of one unit."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from benchmarks.kernels.cases import STRAIGHT, Case
from benchmarks.least_time import _preemptive, least_time
from benchmarks.schedule_quality import programs_of

from nki.passes import allocate_and_schedule, schedule
from nki.passes.allocation import addresses
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.context import Context
from nki.target.load import load_target
from nki.timing.bound import lower_bound
from nki.timing.timeline import timeline
from tests.oracles.written_order import as_written
from tests.together import together

SHORT = [case for case in STRAIGHT if case.label.split()[1] in ("256x1024", "512x512", "1024x512") and not case.cores]


def shortest(begins: list[float], works: list[float], tails: list[float]) -> float:
    """The best of all orders on a unit that interrupts nothing."""
    best = float("inf")
    for order in permutations(range(len(works))):
        now = end = 0.0
        for each in order:
            now = max(now, begins[each]) + works[each]
            end = max(end, now + tails[each])
        best = min(best, end)
    return best


@together("seed", range(40))
def test_jacksons_schedule_is_a_bound_between_simple_ones_and_the_best_order(seed: int) -> None:
    random = Random(seed)
    begins, works, tails = ([float(random.randint(low, 12)) for _ in range(5)] for low in (0, 1, 0))
    found = _preemptive(begins, works, tails)
    assert found <= shortest(begins, works, tails)
    for chosen in range(1, 32):
        members = [each for each in range(5) if chosen >> each & 1]
        simple = min(begins[m] for m in members) + sum(works[m] for m in members) + min(tails[m] for m in members)
        assert found >= simple


@pytest.mark.parametrize("case", SHORT, ids=[case.label for case in SHORT])
def test_no_schedule_beats_the_least_time(case: Case) -> None:
    target = load_target(case.target)
    (program,) = programs_of(case, target)
    (segment,) = segments_of(program)
    needs = dependences(segment.items, program, target, segment.edges, segment.fences)
    least = least_time(segment.items, needs, target)
    assert least >= lower_bound(program, target, [needs]) - 1e-6
    context = Context(target)
    placed = [addresses.PASS.run(program, context), allocate_and_schedule.PASS.run(program, context)]
    done = [order(each, Context(target)) for each in placed for order in (schedule.run, as_written)]
    assert all(timeline(each, target).makespan >= least - 1e-6 for each in done)
