"""What holds for every timeline, on random programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.passes.analysis.dependences import dependences, segments_of
from nki.spec.program import Program
from nki.spec.step import UNITS, Step
from nki.target.load import load_target
from nki.target.model import Target
from nki.timing.bound import lower_bound
from nki.timing.timeline import Timeline, timeline
from tests.timing.support import Sketch, traced, trivially

TRN1, TRN2 = load_target("trn1"), load_target("trn2")
SEMAPHORE = TRN2.timing["semaphore_ns"]
ENGINES = ("vector", "scalar", "gpsimd", "sync")
ALONE = st.lists(
    st.tuples(st.sampled_from(ENGINES), st.integers(1, 300), st.integers(0, 200), st.sets(st.integers(1, 8))),
    min_size=1,
    max_size=25,
)
"""Engine, busy ns, latency ns, and how far back the producers are."""

MIXED = st.lists(
    st.tuples(
        st.sampled_from((*ENGINES, "tensor", "dma0", "dma1", "dma2")),
        st.integers(1, 300),
        st.integers(0, 200),
        st.sets(st.integers(1, 8), max_size=3),
    ),
    min_size=1,
    max_size=25,
)
Parts = list[tuple[str, int, int, set[int]]]


def steps_of(queue: str, ns: int, latency: int) -> tuple[Step, ...]:
    if queue.startswith("dma"):
        return Step("T", "sync", 89, 911), Step("D", "dma", float(ns), float(latency), 250 * ns)
    if queue == "tensor":
        return Step("L", "tensor.load", 13, 145), Step("M", "tensor", float(ns), float(latency))
    return (Step("E", queue, float(ns), float(latency)),)


def sketch_of(parts: Parts) -> Sketch:
    sketch = Sketch()
    for queue, ns, latency, back in parts:
        after = [len(sketch.items) - b for b in sorted(back) if b <= len(sketch.items)]
        sketch.add(queue, *steps_of(queue, ns, latency), after=after)
    return sketch


def longest_path(sketch: Sketch, parts: Parts) -> list[float]:
    """Starts when every queue has an engine of its own: the longest path, instruction by instruction."""
    start, visible, ends = [], [], {name: 0.0 for name in ENGINES}
    done = dict(ends)
    for position, (queue, ns, latency, _) in enumerate(parts):
        earliest = ends[queue]
        for producer in sketch.after[position]:
            if parts[producer][0] != queue:
                earliest = max(earliest, visible[producer] + SEMAPHORE)
        start.append(earliest)
        ends[queue] = earliest + ns
        done[queue] = max(done[queue], ends[queue] + latency)
        visible.append(done[queue])
    return start


@given(ALONE)
def test_engines_start_after_the_longest_path(parts: Parts) -> None:
    sketch = sketch_of(parts)
    assert list(timeline(sketch.program(), TRN2).start) == longest_path(sketch, parts)


@given(ALONE, st.data())
def test_one_more_wait_never_makes_a_program_shorter(parts: Parts, data: st.DataObject) -> None:
    """On engines of their own; units that are shared first come, first served can gain from a delay."""
    sketch = sketch_of(parts)
    before = timeline(sketch.program(), TRN2).makespan
    consumer = data.draw(st.integers(0, len(parts) - 1))
    producer = data.draw(st.integers(0, max(0, consumer - 1)))
    if producer < consumer:
        sketch.after[consumer] = (*sketch.after[consumer], producer)
    assert timeline(sketch.program(), TRN2).makespan >= before


@settings(deadline=None)
@given(MIXED, st.sampled_from([TRN1, TRN2]))
def test_queues_are_in_order_and_waits_hold(parts: Parts, target: Target) -> None:
    sketch = sketch_of(parts)
    found = timeline(sketch.program(), target)
    semaphore = target.timing["semaphore_ns"]
    for queue in set(sketch.queues):
        mine = [p for p, name in enumerate(sketch.queues) if name == queue]
        assert np.all(np.diff(found.start[mine]) >= 0)
        assert np.all(np.diff(found.visible[mine]) >= 0)
    for consumer, producers in enumerate(sketch.after):
        for producer in producers:
            other = sketch.queues[producer]
            if other != sketch.queues[consumer]:
                signal = 0.0 if other.startswith("dma") else semaphore
                assert found.start[consumer] >= found.visible[producer] + signal
    assert found.makespan == found.visible.max()
    assert np.all(found.wait >= 0)
    assert np.all(found.visible - found.start >= found.alone - 1e-6)


@settings(deadline=None)
@given(MIXED, st.sampled_from([TRN1, TRN2]))
def test_no_unit_works_longer_than_the_program(parts: Parts, target: Target) -> None:
    sketch = sketch_of(parts)
    found = timeline(sketch.program(), target)
    assert set(found.busy) == set(UNITS)
    assert max(found.busy.values()) <= found.makespan + 1e-6
    assert found.nbytes <= target.dma.aggregate_gbps * found.busy["dma"] + 1e-6
    assert found.makespan >= lower_bound(sketch.program(), target, [sketch.after]) - 1e-6


@settings(deadline=None)
@given(MIXED)
def test_equal_programs_have_equal_timelines(parts: Parts) -> None:
    assert same(timeline(sketch_of(parts).program(), TRN2), timeline(sketch_of(parts).program(), TRN2))


def same(a: Timeline, b: Timeline) -> bool:
    columns = ("queue", "start", "end", "visible", "turn", "cause", "blocker")
    return all(getattr(a, c).tobytes() == getattr(b, c).tobytes() for c in columns) and a.makespan == b.makespan


# --- lower bounds


def test_the_bound_of_a_chain_is_its_length() -> None:
    parts: Parts = [("vector", 100, 10, set()), ("scalar", 50, 20, {1}), ("vector", 100, 10, {1})]
    sketch = sketch_of(parts)
    expected = 100 + 10 + SEMAPHORE + 50 + 20 + SEMAPHORE + 100 + 10
    assert lower_bound(sketch.program(), TRN2, [sketch.after]) == expected
    assert timeline(sketch.program(), TRN2).makespan == expected


def test_the_bound_of_independent_work_is_the_busiest_unit() -> None:
    parts: Parts = [("vector", 100, 0, set())] * 5 + [("scalar", 70, 0, set())] * 6
    sketch = sketch_of(parts)
    assert lower_bound(sketch.program(), TRN2, [sketch.after]) == 500


def tiles(a: Any, b: Any) -> Any:
    """A bit of everything, with a loop."""
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    for tile in range(3):
        x = nl.ndarray((128, 128), a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((128, 512), b.dtype, buffer=nl.sbuf)
        z = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        nisa.dma_copy(dst=x, src=a[:, tile * 128 : (tile + 1) * 128])
        nisa.dma_copy(dst=y, src=b)
        nisa.nc_matmul(dst=z, stationary=x, moving=y)
        nisa.activation(dst=y, op=nl.exp, data=z)
        nisa.tensor_tensor(dst=y, data1=y, data2=y, op=nl.add)
        nisa.dma_copy(dst=out, src=y)
    acc = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    for _ in nl.dynamic_range(4):
        nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out, src=acc)
    return out


def test_a_kernel_stays_above_its_bound() -> None:
    for target in (TRN1, TRN2, load_target("trn3")):
        arrays = np.zeros((128, 384), nl.bfloat16), np.zeros((128, 512), nl.bfloat16)
        source: Program = traced(tiles, *arrays, target=target)[0]
        needs = [
            dependences(segment.items, source, target, segment.edges, segment.fences) for segment in segments_of(source)
        ]
        bound = lower_bound(source, target, needs)
        found = timeline(trivially(source, target), target)
        assert 0 < bound <= found.makespan
        assert not found.assumed
        again = timeline(trivially(replace(source), target), target)
        assert same(found, again)
