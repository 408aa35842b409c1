"""Loops: extrapolated trips against the same trips written out, trip counts, barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.spec.program import Block, ForLoop, WhileLoop
from nki.spec.step import Step
from nki.target.load import load_target
from nki.target.model import Target
from nki.timing.hardware import hardware_of
from nki.timing.loops import counts
from nki.timing.timeline import Timeline, timeline
from tests.timing.support import Sketch, program, traced, trivially

TRN1, TRN2 = load_target("trn1"), load_target("trn2")
BARRIER = hardware_of(TRN2).barrier


def loop(body: Block, trips: int | VirtualRegister) -> ForLoop:
    return ForLoop(0, trips, 1, VirtualRegister(0), body, UNKNOWN)


def segment(*times: float, unit: str = "vector") -> Block:
    sketch = Sketch()
    for ns in times:
        sketch.add(unit, Step("Toy", unit, ns))
    return sketch.block()


def written_out(body: Block, trips: int, target: Target) -> float:
    """Each trip a loop of its own; two such loops have one barrier more between them than two trips."""
    parts = [loop(body, 1) for _ in range(trips)]
    return timeline(program(*parts), target).makespan - (trips - 1) * hardware_of(target).barrier


# --- trips


def test_a_loop_takes_its_trips_and_a_barrier_around_each() -> None:
    found = timeline(program(loop(segment(100, 50), 1_000_000)), TRN2)
    assert found.makespan == pytest.approx(1_000_000 * 150 + 1_000_001 * BARRIER)
    assert found.busy["vector"] == 150e6
    assert list(found.runs) == [1e6, 1e6]
    assert found.start[0] == BARRIER


def test_a_loop_without_trips_takes_a_barrier() -> None:
    found = timeline(program(segment(10), loop(segment(100), 0)), TRN2)
    assert found.makespan == pytest.approx(10 + BARRIER)
    assert found.instruction(1).queue == ""
    assert list(found.runs) == [1, 0]


def test_bounds_in_registers_need_a_run() -> None:
    """The outer loop ran 4 times, the inner one 10 times in all: 2.5 trips each."""
    inner = WhileLoop(VirtualRegister(1), segment(100), UNKNOWN)
    outer = loop(Block([], [inner], [None]), VirtualRegister(2))
    source = program(outer)
    known = timeline(source, TRN2, {0: 4, 1: 10})
    assert known.makespan == pytest.approx(10 * 100 + BARRIER * (5 + 4 + 10))
    assert known.assumed == ()
    assert list(known.runs) == [10]
    unknown = timeline(source, TRN2)
    assert unknown.assumed == (0, 1)
    assert unknown.makespan == pytest.approx(100 + 4 * BARRIER)


def test_the_times_of_a_loop_tell_when_its_trips_follow() -> None:
    found = timeline(program(segment(10), loop(segment(100), 5)), TRN2)
    (only,) = found.loops
    assert (only.first, only.last, only.trips) == (1, 2, 5)
    assert only.start == found.start[1] == 10 + BARRIER
    assert found.makespan == pytest.approx(only.start + only.first_ns + 4 * only.steady_ns)


def test_what_was_loaded_in_one_trip_is_there_in_the_next() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        y = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        for op in operators:
            nisa.activation(dst=x, op=op, data=y)
        return out

    def length(trips: int) -> float:
        body = trivially(traced(kernel, np.zeros((128, 600), np.float32))[0], TRN2).body
        return timeline(program(loop(body, trips)), TRN2).makespan

    table = TRN2.timing["activation_table_load_ns"]
    trip = (600 + TRN2.timing["scalar_fixed_cycles"]) / TRN2.engines.scalar.ghz
    operators = [nl.exp]
    assert length(7) == pytest.approx(table + 7 * trip + 8 * BARRIER)
    operators = [nl.exp, nl.tanh]
    first, steady = length(1), length(2) - length(1)
    assert steady == pytest.approx(first - BARRIER)  # both tables, every time
    assert length(9) == pytest.approx(first + 8 * steady)


BODIES = st.lists(
    st.tuples(
        st.sampled_from(["tensor", "vector", "dma0", "dma1"]),
        st.integers(1, 900),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


def body_of(parts: list[tuple[str, int, int]]) -> Block:
    sketch = Sketch()
    for queue, ns, back in parts:
        after = [len(sketch.items) - back] if 0 < back <= len(sketch.items) else []
        steps = {
            "tensor": (Step("L", "tensor.load", 20, 100), Step("M", "tensor", float(ns), 170)),
            "vector": (Step("V", "vector", float(ns), 160),),
        }.get(queue, (Step("T", "sync", 89, 911), Step("D", "dma", float(ns), 300, 368 * ns)))
        sketch.add(queue, *steps, after=after)
    return sketch.block()


@settings(deadline=None, max_examples=60)
@given(BODIES, st.integers(1, 40), st.sampled_from(["trn1", "trn2"]))
def test_extrapolated_trips_are_the_trips_written_out(parts: list[tuple[str, int, int]], trips: int, name: str) -> None:
    target, body = load_target(name), body_of(parts)
    assert timeline(program(loop(body, trips)), target).makespan == pytest.approx(written_out(body, trips, target))


@settings(deadline=None, max_examples=20)
@given(BODIES, st.integers(1, 6), st.integers(1, 6))
def test_nested_loops_are_loops_written_out(parts: list[tuple[str, int, int]], outer: int, inner: int) -> None:
    body = body_of(parts)
    nested = timeline(program(loop(Block([], [loop(body, inner)], [None]), outer)), TRN2).makespan
    flat = program(*[loop(body, 1) for _ in range(outer * inner)])
    barriers = 2 * outer * inner - (outer + 1 + outer * (inner + 1))
    assert nested == pytest.approx(timeline(flat, TRN2).makespan - barriers * BARRIER)


def test_the_cost_of_timing_does_not_grow_with_the_trips() -> None:
    body = body_of([("tensor", 400, 0), ("vector", 300, 1), ("dma0", 200, 1)])

    def shown(trips: int) -> tuple[Timeline, int]:
        found = timeline(program(loop(body, trips)), TRN2)
        return found, found.loops[0].last

    few, many = shown(100)[0], shown(10_000_000)[0]
    steady = many.loops[0].steady_ns
    assert many.makespan - few.makespan == pytest.approx(steady * (10_000_000 - 100))


# --- counting copies


@given(st.integers(0, 60), st.integers(1, 9), st.data())
def test_counts_agree_with_walking_over_the_trips(trips: int, timed: int, data: st.DataObject) -> None:
    timed = min(timed, trips)
    repeat = data.draw(st.integers(0, max(0, timed - 1)))
    expected, at = [0.0] * timed, 0
    for _ in range(trips):
        expected[at] += 1
        at = at + 1 if at + 1 < timed else repeat
    assert counts(float(trips), timed, repeat if timed else -1) == expected


def test_a_part_of_a_trip_counts_in_part() -> None:
    assert counts(2.5, 3, 2) == [1, 1, 0.5]
    assert counts(4.25, 2, 1) == [1, 3.25]
