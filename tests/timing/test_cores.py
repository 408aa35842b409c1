"""Two cores that meet: starts of both at the later one, and loops in step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import VerificationError
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.spec.program import Block, ForLoop, Program
from nki.spec.step import Step
from nki.target.load import load_target
from nki.timing.cores import STEADY_TRIPS, timelines
from nki.timing.hardware import hardware_of
from nki.timing.timeline import timeline
from tests.timing.support import Sketch, program, traced, trivially

TRN2 = load_target("trn2")
BARRIER = hardware_of(TRN2).barrier
MEETING = 50.0


def part(*work: float, queue: str = "gpsimd") -> Block:
    """Work on one engine, with a meeting after each piece."""
    sketch = Sketch()
    for ns in work:
        sketch.add(queue, Step("Work", queue, ns))
        sketch.add(queue, Step("Meet", queue, MEETING), effects=("rendezvous",))
    return sketch.block()


def loop(body: Block, trips: int) -> ForLoop:
    return ForLoop(0, trips, 1, VirtualRegister(0), body, UNKNOWN)


def test_cores_wait_for_each_other() -> None:
    a, b = timelines([program(part(100, 400)), program(part(300, 100))], TRN2)
    assert list(a.start) == [0, 300, 350, 750]
    assert list(b.start) == [0, 300, 350, 750]
    assert a.makespan == b.makespan == 800
    assert a.instruction(1).waited_for == "core"
    assert a.instruction(1).wait_ns == 200
    assert b.instruction(1).waited_for == ""


def test_other_queues_go_on_during_a_wait() -> None:
    def core(ns: float) -> Program:
        sketch = Sketch()
        sketch.add("gpsimd", Step("Work", "gpsimd", ns))
        meeting = sketch.add("gpsimd", Step("Meet", "gpsimd", MEETING), effects=("rendezvous",))
        sketch.add("vector", Step("V", "vector", 200))
        sketch.add("vector", Step("V", "vector", 200))
        sketch.add("vector", Step("V", "vector", 10), after=[meeting])
        return sketch.program()

    a, _ = timelines([core(10), core(1000)], TRN2)
    assert list(a.start[2:]) == [0, 200, 1000 + MEETING + TRN2.timing["semaphore_ns"]]


def test_a_single_core_meets_nobody() -> None:
    alone = program(part(100, 400))
    assert timeline(alone, TRN2).makespan == 100 + 400 + 2 * MEETING
    assert timelines([alone], TRN2)[0].makespan == 100 + 400 + 2 * MEETING


def test_a_segment_may_meet_a_loop() -> None:
    """One core meets in a loop of three trips, the other one three times in a row."""
    a, b = timelines([program(loop(part(100), 3)), program(part(500, 500, 500))], TRN2)
    assert b.makespan == pytest.approx(3 * (500 + MEETING))
    assert a.makespan == pytest.approx(b.makespan + BARRIER)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900)), min_size=1, max_size=3), st.integers(0, 12))
def test_loops_in_step_are_loops_written_out(work: list[tuple[int, int]], trips: int) -> None:
    bodies = [part(*[float(pair[core]) for pair in work]) for core in (0, 1)]
    looped = timelines([program(loop(body, trips)) for body in bodies], TRN2)
    flat = timelines([program(*[loop(body, 1) for _ in range(trips)]) for body in bodies], TRN2)
    for a, b in zip(looped, flat, strict=True):
        assert a.makespan == pytest.approx(b.makespan - (trips - 1) * BARRIER)


def test_many_trips_cost_no_more_than_a_few() -> None:
    bodies = part(100), part(300)
    found = timelines([program(loop(body, 10_000_000)) for body in bodies], TRN2)
    trip = 300 + MEETING + BARRIER
    assert found[0].makespan == pytest.approx(BARRIER + 10_000_000 * trip)
    assert STEADY_TRIPS < 100


def test_a_core_that_does_not_come_is_an_error() -> None:
    with pytest.raises(VerificationError) as error:
        timelines([program(part(100, 100)), program(part(100))], TRN2)
    assert error.value.code == "timeline.meeting"


def test_a_kernel_on_two_cores() -> None:
    """Core 1 works longer before the barrier, so that core 0 waits and both store after it."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray((2, 128, 512), nl.float32, buffer=nl.shared_hbm)
        x = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.memset(x, 0.0)
        for _ in range(1 + 9 * nl.program_id(0)):
            nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[nl.program_id(0)], src=x)
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(dst=x, src=out[1 - nl.program_id(0)])
        return out

    sources = traced(kernel, np.zeros((128, 512), np.float32), lnc=2)
    first, second = timelines([trivially(source, TRN2) for source in sources], TRN2)
    names = [[i.instruction.name for i in source.body.walk()] for source in sources]
    meetings = [column.index("core_barrier") for column in names]
    assert first.start[meetings[0]] == pytest.approx(second.start[meetings[1]])
    assert first.instruction(meetings[0]).waited_for == "core"
    assert timeline(trivially(sources[0], TRN2), TRN2).makespan < first.makespan
    assert second.makespan == pytest.approx(timeline(trivially(sources[1], TRN2), TRN2).makespan)
