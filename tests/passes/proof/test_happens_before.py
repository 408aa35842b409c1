"""The proof of schedules against the oracle that runs every legal order, and by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import float32
from nki.core.errors import ExecutionError
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from nki.passes.analysis.footprints import Footprint
from nki.passes.check_races import PASS, refuse_races
from nki.passes.context import Context
from nki.passes.proof import conflicts
from nki.passes.proof.happens_before import check
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, Wait
from nki.target.load import load_target
from tests.ir.kernels import array, traced
from tests.oracles.reordering import check_reordering
from tests.passes.proof.agreement import queues, table
from tests.passes.proof.programs import issue, program, waits_for

TRN2 = load_target("trn2")


# --- random programs


@pytest.mark.parametrize("part", range(4))
def test_it_says_what_the_oracle_says(part: int) -> None:
    found = table(range(part * 100, part * 100 + 100))
    assert all(oracle == proof for oracle, proof in found), found
    assert min(found[verdict, verdict] for verdict in ("ordered", "racy", "stuck")) > 2, found


@pytest.mark.slow
def test_it_says_what_the_oracle_says_of_many_programs() -> None:
    found = table(range(10_000, 16_000))
    assert all(oracle == proof for oracle, proof in found), found


def test_a_proof_that_forgets_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: accesses that only touch a new one do not lie within it."""
    monkeypatch.setattr(conflicts, "_within", lambda entry, footprint, area: True)
    assert any(oracle != proof for oracle, proof in map(queues, range(400)))


def test_reversed_conflicts_are_those_of_the_oracle() -> None:
    for seed in range(80):
        random = Random(seed)
        made = program(random)
        order = random.sample(range(len(made.items)), len(made.items))
        place = {old: new for new, old in enumerate(order)}
        reversed_ones = [(a, b) for a, b in made.conflicts() if place[a] > place[b]]
        found = check_reordering(made.items, order, made.program, TRN2, made.program.edges)
        assert bool(found) == bool(reversed_ones), seed


def naive_bytes(footprint: Footprint) -> set[int]:
    starts = {footprint.low}
    for stride, count in footprint.dims:
        starts = {start + k * stride for start in starts for k in range(count)}
    return {start + k for start in starts for k in range(footprint.run)}


def test_masks_are_the_bytes() -> None:
    random = Random(5)
    for _ in range(400):
        pair = []
        for _ in range(2):
            dims = [(random.choice([4, 6, 12, 30]), random.randint(2, 7)) for _ in range(random.randint(0, 3))]
            dims.sort(reverse=True)
            run = random.choice([1, 2, 4])
            pair.append(Footprint(0, "t", (0, 1), random.randrange(200), tuple(dims), run))
        assert conflicts.share_bytes(*pair) == bool(naive_bytes(pair[0]) & naive_bytes(pair[1]))


# --- by hand


def tile(key: int, region: MemoryRegion = MemoryRegion.sbuf) -> View:
    return whole(Buffer(key, f"t{key}", region, (128, 64), float32))


def copy(dst: View, src: View, by: engine = engine.vector) -> Issued:
    return issue("tensor_copy", by, dst=dst, src=src)


def synced(*items: Issued, sync: list[Sync], **more: Any) -> Program:
    return Program("k", "trn2", 0, 1, body=Block([], list(items), list(sync)), **more)


A, B, C = tile(0), tile(1), tile(2)
LOAD, ADD, STORE = (
    copy(B, A, engine.scalar),
    copy(C, B, engine.vector),
    copy(A, C, engine.gpsimd),
)
ORDERED = [
    Sync("scalar", (), True),
    Sync("vector", (Wait("scalar", 1),), True),
    Sync("gpsimd", (Wait("vector", 1),)),
]


def test_a_chain_of_signals_orders_its_ends() -> None:
    assert check([synced(LOAD, ADD, STORE, sync=ORDERED)], TRN2) == []


def test_a_missing_wait_names_both_and_what_they_share() -> None:
    with_add, with_load = check([synced(LOAD, ADD, STORE, sync=[*ORDERED[:2], Sync("gpsimd")])], TRN2)
    assert (with_add.kind, with_add.first, with_add.second) == ("raw", ADD, STORE)
    assert (with_load.kind, with_load.first, with_load.second) == ("war", LOAD, STORE)
    assert with_load.bytes == "t0 partitions 0:128, bytes 0:256"
    assert (with_load.cores, with_load.code) == ((0, 0), "schedule.race")


def test_each_reader_waits_for_the_writer_itself() -> None:
    items = [copy(B, A, engine.scalar), copy(C, B, engine.vector), copy(tile(3), B, engine.gpsimd)]
    sync = [Sync("scalar", (), True), Sync("vector", (Wait("scalar", 1),)), Sync("gpsimd")]
    (race,) = check([synced(*items, sync=sync)], TRN2)
    assert (race.kind, race.first, race.second) == ("raw", items[0], items[2])


def test_a_signal_also_tells_what_its_sender_waited_for() -> None:
    """The last one waits for the second, whose queue heard of the first one before, in another instruction."""
    items = [copy(B, A, engine.scalar), copy(C, B), copy(tile(3), tile(4)), copy(A, tile(3), engine.gpsimd)]
    sync = [Sync("scalar", (), True), Sync("vector", (Wait("scalar", 1),)), Sync("vector", (), True)]
    assert check([synced(*items, sync=[*sync, Sync("gpsimd", (Wait("vector", 1),))])], TRN2) == []
    assert len(check([synced(*items, sync=[*sync, Sync("gpsimd")])], TRN2)) == 2


def test_order_against_the_program_is_a_race() -> None:
    sync = [Sync("scalar", (Wait("vector", 1),)), Sync("vector", (), True)]
    assert [race.kind for race in check([synced(LOAD, ADD, sync=sync)], TRN2)] == ["raw"]


def test_a_cyclic_wait() -> None:
    sync = [Sync("scalar", (Wait("vector", 1),), True), Sync("vector", (Wait("scalar", 1),), True)]
    (race,) = check([synced(LOAD, ADD, sync=sync)], TRN2)
    assert (race.kind, race.first, race.second) == ("deadlock", LOAD, ADD)


def test_a_wait_for_a_later_instruction_of_its_own_queue() -> None:
    sync = [Sync("vector", (Wait("vector", 1),)), Sync("vector", (), True)]
    items = [copy(B, A), copy(C, A)]
    assert [race.kind for race in check([synced(*items, sync=sync)], TRN2)] == ["deadlock"]


@pytest.mark.parametrize("wait", [Wait("scalar", 2), Wait("tensor", 1)])
def test_a_signal_that_never_comes(wait: Wait) -> None:
    sync = [Sync("scalar", (), True), Sync("vector", (wait,))]
    (race,) = check([synced(LOAD, ADD, sync=sync)], TRN2)
    assert (race.kind, race.code, race.first) == ("signal", "schedule.signal", ADD)


@pytest.mark.parametrize("queue", ["scalar", "dma0", "vectors", ""])
def test_an_engine_has_one_queue(queue: str) -> None:
    assert [race.kind for race in check([synced(copy(B, A), sync=[Sync(queue)])], TRN2)] == ["queue"]


@pytest.mark.parametrize(("queue", "legal"), [("dma0", True), ("dma15", True), ("dma16", False), ("dma", False)])
def test_transfers_have_as_many_queues_as_the_target(queue: str, legal: bool) -> None:
    move = issue("dma_copy", engine.dma, dst=B, src=A)
    assert bool(check([synced(move, sync=[Sync(queue)])], TRN2)) != legal


def test_every_instruction_of_a_synchronised_block_has_a_queue() -> None:
    made = synced(LOAD, ADD, sync=ORDERED[:1])
    assert [race.kind for race in check([made], TRN2)] == ["unscheduled"]


def test_a_block_without_queues_runs_in_its_order() -> None:
    assert check([Program("k", "trn2", 0, 1, body=Block([], [LOAD, ADD, STORE]))], TRN2) == []


def test_edges_and_ordered_regions_are_respected() -> None:
    apart = [copy(tile(10), tile(11), engine.scalar), copy(tile(12), tile(13), engine.vector)]
    free = [Sync("scalar", (), True), Sync("vector")]
    bound = [free[0], Sync("vector", (Wait("scalar", 1),))]
    for more in ({"edges": [(0, 1)]}, {"fences": [(0, 2)]}):
        assert [race.kind for race in check([synced(*apart, sync=free, **more)], TRN2)] == ["edge"]
        assert check([synced(*apart, sync=bound, **more)], TRN2) == []
    assert [race.kind for race in check([synced(*apart, sync=bound, edges=[(1, 0)])], TRN2)] == ["edge"]


def test_registers_and_state_of_the_engines() -> None:
    register = VirtualRegister(0)
    move = issue("register_move", engine.sync, dst=register, src=1)
    other = issue("register_move", engine.vector, dst=VirtualRegister(1), src=register)
    sync = [Sync("sync", (), True), Sync("vector")]
    (race,) = check([synced(move, other, sync=sync)], TRN2)
    assert (race.kind, race.bytes) == ("state", "register 0")
    assert check([synced(move, other, sync=[sync[0], Sync("vector", (Wait("sync", 1),))])], TRN2) == []


def test_loops_are_barriers_and_counts_start_again() -> None:
    inside = Block([], [LOAD, ADD], [Sync("scalar", (), True), Sync("vector", (Wait("scalar", 1),))])
    loop = ForLoop(0, 4, 1, VirtualRegister(0), inside, UNKNOWN)
    body = Block([], [LOAD, loop, ADD, STORE], [Sync("scalar"), None, Sync("vector", (), True), ORDERED[2]])
    made = Program("k", "trn2", 0, 1, body=body)
    assert check([made], TRN2) == []
    inside.sync = [Sync("scalar", (), True), Sync("vector")]
    assert [race.kind for race in check([made], TRN2)] == ["raw"]


def test_many_faults_are_cut_short() -> None:
    items = [copy(B, A, by) for _ in range(200) for by in (engine.vector, engine.scalar)]
    found = check([synced(*items, sync=waits_for([item.engine.name for item in items], []))], TRN2)
    assert 20 <= len(found) < 60


# --- the pass


def kernel(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf, name="x")
    nisa.dma_copy(dst=x, src=a)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
    nisa.dma_copy(dst=out, src=x)
    return out


def test_the_pass_names_both_lines() -> None:
    (made,) = traced(kernel, array())
    good = [Sync("dma0", (), True), Sync("vector", (Wait("dma0", 1),), True), Sync("dma0", (Wait("vector", 1),))]
    made.body.sync = list(good)
    assert PASS.run(made, Context(TRN2)) is made
    made.body.sync[1] = good[1]._replace(waits=())
    with pytest.raises(ExecutionError) as caught:
        PASS.run(made, Context(TRN2))
    error = caught.value
    load, scale, _ = made.body.walk()
    assert error.code == "schedule.race"
    assert str(load.location) in error.message and str(scale.location) in error.message
    assert error.location == scale.location
    assert error.facts["bytes"] == "x partitions 0:128, bytes 0:256"
    assert {finding.facts["kind"] for finding in error.found} == {"raw", "waw"}


def test_a_deadlock_has_its_own_code() -> None:
    sync = [Sync("scalar", (Wait("vector", 1),), True), Sync("vector", (Wait("scalar", 1),), True)]
    with pytest.raises(ExecutionError) as caught:
        refuse_races([synced(LOAD, ADD, sync=sync)], TRN2)
    assert caught.value.code == "schedule.deadlock"
