"""DMA: triggers, shared bandwidth against a simulation in pieces, queues, and the limits that are assumed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.spec.step import Step
from nki.target.load import load_target
from nki.timing.bandwidth import NEVER, Transfers
from nki.timing.cost import cost_of
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
    load, store = (32 * 1024 / timing[f"dma_{way}_bytes_per_ns"] for way in ("read", "write"))
    found = timeline(trivially(source, TRN2), TRN2)
    assert found.makespan == pytest.approx(start + load + complete + start + store + complete)
    assert found.nbytes == 2 * 32 * 1024


def transfers_of(kernel: object, *arrays: np.ndarray, name: str = "trn2") -> list[tuple[Step, ...]]:
    """The steps of all transfers of a kernel."""
    target = load_target(name)
    items = traced(kernel, *arrays, target=target)[0].body.walk()  # type: ignore[arg-type]
    return [cost_of(issued, target) for issued in items]


def loading(a: object) -> object:
    """One load of all of a tensor."""
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)  # type: ignore[attr-defined]
    nisa.dma_copy(dst=x, src=a)  # type: ignore[arg-type]
    return nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)


@pytest.mark.parametrize(("rows", "engines"), [(4, 1), (8, 1), (64, 8), (128, 16)])
def test_a_transfer_takes_the_time_of_its_descriptors(rows: int, engines: int) -> None:
    """Each engine has 8 rows at most; a row is a descriptor."""
    ((_, data),) = transfers_of(loading, np.zeros((rows, 512), np.float32))
    timing = TRN2.timing
    working = min(rows, 8) * 2048 / timing["dma_read_bytes_per_ns"]
    skew = timing["dma_skew_ns"] * (engines - 1) / 15
    signal = timing["dma_signal_ns"]
    assert data.ns == pytest.approx(working + skew) and data.skew == pytest.approx(skew - signal)
    assert data.occupied * data.ns == pytest.approx(working * engines / 16 + signal)


def test_short_rows_count_as_the_least_descriptor() -> None:
    """Below 256 bytes for each row, overhead dominates (nki-dma-bandwidth-guide.rst)."""
    by_size = [transfers_of(loading, np.zeros((128, n), np.float32))[0][1].ns for n in (1, 64, 128)]
    assert by_size[0] == by_size[1] < by_size[2]


def storing(a: object) -> object:
    """A store of all of a tensor in SBUF."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)  # type: ignore[attr-defined]
    nisa.dma_copy(dst=out, src=nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf))  # type: ignore[attr-defined]
    return out


def test_pieces_below_a_burst_of_memory_are_read_before_they_are_written() -> None:
    """Stores of 4 bytes for each row work twice as long as those of 64; loads do not."""

    def working(kernel: object, columns: int) -> float:
        data = transfers_of(kernel, np.zeros((128, columns), np.float32))[0][1]  # type: ignore[arg-type]
        return data.occupied * data.ns - TRN2.timing["dma_signal_ns"]

    assert working(storing, 1) == pytest.approx(2 * working(storing, 16))
    assert working(loading, 1) == pytest.approx(working(loading, 16))


def test_a_casting_transfer_moves_what_device_memory_has() -> None:
    """Stores of float32 tiles as bfloat16 take the time of the bytes that are stored; 60 MB of them are published."""

    def cast(a: NkiTensor) -> object:
        tile = nl.ndarray(a.shape, nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        out = nl.ndarray(a.shape, nl.bfloat16, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    load, store = (steps[-1] for steps in transfers_of(cast, np.zeros((128, 4096), np.float32)))
    assert (load.nbytes, store.nbytes) == (128 * 4096 * 4, 128 * 4096 * 2)
    plain = transfers_of(storing, np.zeros((128, 4096), nl.bfloat16))[0][-1]
    assert store == plain


def test_loads_and_stores_share_the_engines_each_at_its_rate() -> None:
    """A published stream loads and stores 58.7 MB on a core in 294 us, of which the rates 23 and 27.2 explain 294.6."""
    sketch, count = Sketch(), 112

    def tile(a: object) -> object:
        storing(a)
        return loading(a)

    store, load = traced(tile, np.zeros((128, 1024), np.float32))[0].body.walk()
    for number in range(count):
        sketch.issue(f"dma{number % 2}", load)
        sketch.issue(f"dma{number % 2 + 2}", store)
    timing = TRN2.timing
    each = sum(
        128 * 4096 / 16 / timing[f"dma_{way}_bytes_per_ns"] + timing["dma_signal_ns"] for way in ("read", "write")
    )
    ns = timeline(sketch.program(), TRN2).makespan
    assert ns == pytest.approx(count * each, rel=0.02)
    assert ns == pytest.approx(294_000, rel=0.05)


def test_a_single_engine_goes_on_when_the_signal_is_written() -> None:
    """Without a skew, the next transfer of a queue begins later than the last byte of the one before."""
    step = Step("Move", "dma", 500, 0, 0, 0, 0.4, -30)
    sketch = Sketch()
    for _ in range(3):
        sketch.add("dma0", trigger(10, 90), step)
    assert list(timeline(sketch.program(), TRN2).end) == pytest.approx([600, 1130, 1660])


def test_a_transfer_follows_another_one_of_its_queue_without_the_skew() -> None:
    skewed = Step("Move", "dma", 500, 0, 0, 0, 0.4, 200)
    sketch = Sketch()
    for _ in range(3):
        sketch.add("dma0", trigger(10, 90), skewed)
    assert list(timeline(sketch.program(), TRN2).end) == pytest.approx([600, 900, 1200])


def test_many_small_transfers_are_bound_by_their_triggers() -> None:
    """Where a block generates descriptors it takes about 600 ns for 128 rows (nki/deep-dives/nki-dge.rst)."""
    timing = TRN2.timing
    generated = timing["dma_trigger_instruction_ns"] + 128 * timing["hwdge_descriptor_ns"]
    for name, apart in (("trn2", generated), ("trn1", load_target("trn1").timing["dma_trigger_instruction_ns"])):
        target, sketch = load_target(name), Sketch()
        (load,) = traced(loading, np.zeros((128, 128), np.float32), target=target)[0].body.walk()
        for number in range(20):
            sketch.issue(f"dma{number % 16}", load)
        starts = np.sort(timeline(sketch.program(), target).start)
        assert list(np.diff(starts)) == pytest.approx([apart] * 19)


def test_an_address_that_was_loaded_is_there_before_the_trigger() -> None:
    """A chain of loads, each of the number that is the address of the next, in one queue."""

    def kernel(a: NkiTensor) -> object:
        tile = nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[0:1, 0:1])
        for _ in range(6):
            found = nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf)
            nisa.dma_copy(dst=found, src=a.ap([[64, 1], [1, 1]], scalar_offset=tile, indirect_dim=1))
            tile = found
        return nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)

    for name in ("trn1", "trn2"):
        target = load_target(name)
        timing, sketch = target.timing, Sketch()
        for issued in traced(kernel, np.zeros((1, 64), np.uint32), target=target)[0].body.walk():
            sketch.issue("dma0", issued)
        links = np.diff(timeline(sketch.program(), target).end)[1:]
        moving = target.dma.overhead_bound_bytes / timing["dma_read_bytes_per_ns"]
        generated = timing["dma_trigger_gpsimd_ns"] if name == "trn1" else 0.0  # trn2 has a block for it
        link = timing["dma_completion_ns"] + generated + timing["dma_trigger_ns"] + moving
        assert list(links) == pytest.approx([link] * 5)


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
