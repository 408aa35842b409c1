"""A segment that nobody wants to know the length of is given up, and only such a one."""

from __future__ import annotations

from typing import Any

import pytest

from nki.compiler import CompileConfig
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes.context import Context
from nki.passes.pipeline import compile_programs
from nki.target.load import load_target
from nki.timing.plan import SegmentPlan, TimingPlanner
from nki.timing.run import SegmentRun, work_of
from nki.timing.state import SegmentState
from tests.profiling.support import PIPELINE, pipeline


def planned(target: str) -> tuple[TimingPlanner, Any]:
    on = load_target(target)
    source = trace_only(Launch(pipeline), PIPELINE, {}, on, Options())[0].program
    (program,) = compile_programs([source], Context(on, Options(), CompileConfig())).programs
    return TimingPlanner(program, on, None), on


def run(planner: TimingPlanner, target: Any, limit: float) -> SegmentRun:
    (plan,) = planner.body.parts
    assert isinstance(plan, SegmentPlan)
    work = work_of(plan.recipes)
    found = SegmentRun(plan, planner.hardware, target, SegmentState(), limit=limit, work=work)
    found.advance()
    return found


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_what_is_no_longer_than_the_limit_is_timed_to_its_end(target: str) -> None:
    planner, on = planned(target)
    whole = run(planner, on, float("inf"))
    for limit in (whole.ns, 1.001 * whole.ns, 10 * whole.ns):
        again = run(planner, on, limit)
        assert again.over and not again.lost
        assert (again.ns, again.start, again.end, again.busy) == (whole.ns, whole.start, whole.end, whole.busy)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_what_certainly_takes_longer_is_given_up(target: str) -> None:
    planner, on = planned(target)
    whole = run(planner, on, float("inf"))
    (plan,) = planner.body.parts
    assert isinstance(plan, SegmentPlan)
    least = max(work_of(plan.recipes))
    assert least <= whole.ns
    lost = run(planner, on, 0.99 * least)
    assert lost.lost and not lost.over
    started = [sum(end > 0.0 for end in run(planner, on, part * whole.ns).end) for part in (0.1, 0.5, 0.9, 1.0)]
    assert started == sorted(started) and started[0] < started[-1], "the tighter the limit, the sooner"
