"""DMA: triggers, shared bandwidth against a simulation in pieces, queues, and the limits that are assumed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.spec.step import Step
from nki.target.load import load_target
from nki.timing.bandwidth import NEVER, Transfers
from nki.timing.timeline import timeline
from tests.timing.support import Sketch, tensor, traced, trivially

TRN2 = load_target("trn2")
SEMAPHORE = TRN2.timing["semaphore_ns"]
RATE = TRN2.dma.aggregate_gbps


def move(ns: float, demand: float, latency: float = 0.0) -> Step:
    """A transfer that takes `ns` alone and uses a part of the bandwidth."""
    return Step("Move", "dma", ns, latency, round(ns * demand * RATE))


def trigger(ns: float = 10, latency: float = 100) -> Step:
    return Step("Trigger", "sync", ns, latency)


def test_small_transfers_do_not_see_each_other() -> None:
    sketch = Sketch()
    for queue in ("dma0", "dma1", "dma2", "dma3"):
        sketch.add(queue, move(1000, 0.25, 50))
    found = timeline(sketch.program(), TRN2)
    assert found.makespan == pytest.approx(1050)
    assert found.busy["dma"] == pytest.approx(1000)
    assert found.nbytes == 4 * round(250 * RATE)


def test_large_transfers_share_the_bandwidth() -> None:
    sketch = Sketch()
    sketch.add("dma0", move(1000, 1.0))
    sketch.add("dma1", move(3000, 1.0))
    found = timeline(sketch.program(), TRN2)
    assert list(found.end) == pytest.approx([2000, 4000])
    assert list(found.slow) == pytest.approx([1000, 1000])


def test_a_transfer_that_comes_later_slows_the_others() -> None:
    """1000 of 2000 ns are done when the second one comes; then both run at 1 / 1.5 until it ends."""
    sketch = Sketch()
    sketch.add("dma0", move(2000, 1.0))
    sketch.add("dma1", trigger(10, 990), move(400, 0.5))
    found = timeline(sketch.program(), TRN2)
    assert list(found.end) == pytest.approx([1000 + 600 + (1000 - 400), 1000 + 600])


def test_a_queue_triggers_ahead_and_moves_in_order() -> None:
    sketch = Sketch()
    for _ in range(3):
        sketch.add("dma0", trigger(), move(500, 0.1, 40))
    found = timeline(sketch.program(), TRN2)
    assert list(found.start) == [0, 10, 20]
    assert list(found.end) == pytest.approx([110 + 500 * k for k in (1, 2, 3)])
    assert found.makespan == pytest.approx(110 + 1500 + 40)


def test_triggers_of_all_queues_take_turns_on_their_engine() -> None:
    sketch = Sketch()
    for queue in ("dma0", "dma1", "dma2"):
        sketch.add(queue, trigger(), move(500, 0.1))
    found = timeline(sketch.program(), TRN2)
    assert list(found.start) == [0, 10, 20]
    assert found.instruction(2).waited_for == "unit"
    assert found.busy["sync"] == 30


def test_what_a_queue_wrote_is_there_when_the_transfer_is_complete() -> None:
    shared = tensor(9)
    sketch = Sketch()
    sketch.add("dma0", trigger(), move(500, 0.1, 300), dst=shared)
    sketch.add("dma0", trigger(), move(500, 0.1, 300), src=shared)
    assert list(timeline(sketch.program(), TRN2).end) == pytest.approx([610, 610 + 300 + 500])


def test_the_latency_of_a_transfer_reaches_to_the_start_of_who_waits() -> None:
    sketch = Sketch()
    first = sketch.add("dma0", move(500, 0.1, 300))
    second = sketch.add("vector", Step("Toy", "vector", 1), after=[first])
    third = sketch.add("scalar", Step("Toy", "scalar", 1), after=[second])
    found = timeline(sketch.program(), TRN2)
    assert found.start[second] == pytest.approx(800)
    assert found.start[third] == pytest.approx(801 + SEMAPHORE)


def test_loads_overlap_computation_and_each_other() -> None:
    """A real kernel of one load, one copy and one store, from the numbers of the target."""

    def kernel(a: object) -> object:
        out = nl.ndarray((4, 4096), nl.bfloat16, buffer=nl.shared_hbm)
        x = nl.ndarray((4, 4096), nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a)  # type: ignore[arg-type]
        nisa.dma_copy(dst=out, src=x)
        return out

    source = traced(kernel, np.zeros((4, 4096), nl.bfloat16))[0]
    timing = TRN2.timing
    start, complete = timing["dma_trigger_ns"], timing["dma_completion_ns"]
    load, store = timing["dma_load_32kib_ns"], timing["dma_store_32kib_ns"]
    found = timeline(trivially(source, TRN2), TRN2)
    assert found.makespan == pytest.approx(start + load + complete + start + store + complete)
    assert found.nbytes == 2 * 32 * 1024


@pytest.mark.parametrize("name", ["trn1", "trn2", "trn3"])
def test_device_memory_serves_all_cores_of_a_stack(name: str) -> None:
    """Why the aggregate of a core is the only limit on its DMA."""
    target = load_target(name)
    assert target.hbm.cores_per_stack * target.dma.aggregate_gbps <= target.hbm.bandwidth_gbps / target.hbm.stacks


# --- sharing, against a simulation that keeps the work that is left of every transfer

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 40), st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0])),
    min_size=1,
    max_size=8,
)


def pieces(arrivals: list[tuple[float, float, float]]) -> list[float]:
    """Ends of transfers ``(start, ns, demand)``, moving from one change of rates to the next."""
    left = {number: float(ns) for number, (_, ns, _) in enumerate(arrivals)}
    ends = [0.0] * len(arrivals)
    now = 0.0
    while left:
        here = [n for n in left if arrivals[n][0] <= now]
        rate = 1.0 / max(1.0, sum(arrivals[n][2] for n in here))
        coming = [arrivals[n][0] - now for n in left if arrivals[n][0] > now]
        step = min([left[n] / rate for n in here] + coming)
        now += step
        for n in here:
            left[n] -= step * rate
            if left[n] <= 1e-9:
                ends[n] = now
                del left[n]
    return ends


@given(ARRIVALS)
def test_sharing_agrees_with_a_simulation_in_pieces(arrivals: list[tuple[float, float, float]]) -> None:
    transfers = Transfers()
    ends = [0.0] * len(arrivals)

    def end_until(now: float) -> None:
        while transfers.next <= now and transfers.next != NEVER:
            end, number = transfers.end()
            ends[number] = end

    for number in sorted(range(len(arrivals)), key=lambda n: arrivals[n][0]):
        start, ns, demand = arrivals[number]
        end_until(start)
        transfers.begin(start, number, ns, demand)
    end_until(NEVER)
    while transfers.next != NEVER:
        end, number = transfers.end()
        ends[number] = end
    assert ends == pytest.approx(pieces(arrivals), abs=1e-6)
    inside = {t for (s, _, _), e in zip(arrivals, ends, strict=True) for t in range(s, round(e))}
    assert abs(transfers.busy - len(inside)) <= 2 * len(arrivals)
