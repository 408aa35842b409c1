"""Dependences against the oracle's pairs, and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from nki.core.dtypes import bfloat16, float32, int32, uint8
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer, MemoryRegion, ScalarOffset, VectorOffset, View, whole
from nki.passes.analysis import interval_index, memory_boxes
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.proof.happens_before import check
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, Program
from nki.target.load import load_target
from tests.oracles.reasons import why
from tests.passes.proof import oracle
from tests.passes.proof.programs import Made, issue, program, waits_for

TRN2 = load_target("trn2")
SBUF, PSUM, HBM = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm


def closed(pairs: Sequence[Sequence[int]]) -> list[set[int]]:
    """Everything before each position, directly or not."""
    before: list[set[int]] = []
    for earlier in pairs:
        before.append(set(earlier).union(*(before[position] for position in earlier)))
    return before


def wanted(made: Made) -> list[set[int]]:
    needed: list[list[int]] = [[] for _ in made.items]
    for a, b in made.conflicts():
        needed[b].append(a)
    return closed(needed)


def needs_of(made: Made) -> list[tuple[int, ...]]:
    return dependences(made.items, made.program, TRN2, made.program.edges)


# --- random programs


@pytest.mark.parametrize("part", range(4))
def test_they_are_the_conflicts_that_the_oracle_sees(part: int) -> None:
    for seed in range(part * 60, part * 60 + 60):
        made = program(Random(seed), most=16)
        assert closed(needs_of(made)) == wanted(made), seed


def test_long_programs_on_few_bytes() -> None:
    for seed in range(6):
        made = program(Random(seed), length=150)
        assert closed(needs_of(made)) == wanted(made), seed


def test_crowded_memory_is_split_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiny limits everything is split, gathered and approximated: more may be ordered then, never less."""
    monkeypatch.setattr(interval_index, "_CROWD", 2)
    monkeypatch.setattr(interval_index, "_MOST_RAGGED", 3)
    monkeypatch.setattr(memory_boxes, "_MOST_BOXES", 1)
    for seed in range(40):
        made = program(Random(seed), length=30)
        for found, needed in zip(closed(needs_of(made)), wanted(made), strict=True):
            assert needed <= found, seed


def test_reasons_exist_exactly_for_conflicts() -> None:
    for seed in range(60):
        made = program(Random(seed))
        pairs = set(made.conflicts())
        for b in range(len(made.items)):
            for a in range(b):
                reasons = why(made.items, a, b, made.program, TRN2, made.program.edges)
                assert bool(reasons) == ((a, b) in pairs), (seed, a, b, reasons)


def test_any_order_that_keeps_them_gives_the_same_result() -> None:
    """Reordered, put on queues and synchronised by them, the oracle and the proof both accept the program."""
    for seed in range(60):
        random = Random(seed)
        made = program(random)
        needs = needs_of(made)
        order = shuffled(random, needs)
        place = {old: new for new, old in enumerate(order)}
        pairs = [(place[a], place[b]) for b in range(len(needs)) for a in needs[b]]
        queues = [made.queues[old] for old in order]
        syncs = waits_for(queues, [(a, b) for a, b in pairs if queues[a] != queues[b]])
        tasks = oracle.tasks([made.does[old] for old in order], syncs)
        assert oracle.verdict(tasks, [place[old] for old in range(len(order))]) == "ordered", seed
        made.program.body.items = [made.items[old] for old in order]
        made.program.body.sync = list(syncs)
        made.program.edges = [(place[a], place[b]) for a, b in made.program.edges]
        assert check([made.program], TRN2) == [], seed


def shuffled(random: Random, needs: Sequence[Sequence[int]]) -> list[int]:
    order: list[int] = []
    left = set(range(len(needs)))
    while left:
        order.append(random.choice([item for item in sorted(left) if not left & set(needs[item])]))
        left.remove(order[-1])
    return order


# --- by hand


def copy(dst: View, src: View, by: engine = engine.vector) -> Issued:
    return issue("tensor_copy", by, dst=dst, src=src)


def tile(key: int, shape: tuple[int, ...] = (128, 64), region: MemoryRegion = SBUF, dtype: object = float32) -> Buffer:
    return Buffer(key, f"t{key}", region, shape, dtype)  # type: ignore[arg-type]


def needs(*items: Issued, **more: object) -> list[tuple[int, ...]]:
    return dependences(items, Program("k", "trn2", 0, 1, **more), TRN2)  # type: ignore[arg-type]


def test_the_three_kinds() -> None:
    a, b, c = (whole(tile(key)) for key in range(3))
    items = [copy(b, a), copy(c, b), copy(b, a)]
    assert needs(*items) == [(), (0,), (1,)]
    empty = Program("k", "trn2", 0, 1)
    assert [r.kind for r in why(items, 0, 1, empty, TRN2)] == ["raw"]
    assert [r.kind for r in why(items, 1, 2, empty, TRN2)] == ["war"]
    assert why(items, 0, 2, empty, TRN2)[0] == ("waw", "t1 partitions 0:128 bytes 0:256")


def test_even_and_odd_elements_do_not_meet() -> None:
    t, a = tile(0), whole(tile(1))
    even, odd = View(t, float32, (128, 32), (64, 2), 0), View(t, float32, (128, 32), (64, 2), 1)
    assert needs(copy(even, a), copy(odd, a), copy(even, a)) == [(), (), (0,)]


@pytest.mark.parametrize("region", [SBUF, HBM])
def test_steps_whose_runs_overlap(region: MemoryRegion) -> None:
    t, a = tile(0, (1, 64), region, uint8), whole(tile(1))
    strides = (5, 6, 1) if region is HBM else (64, 5, 6, 1)  # runs of four bytes at 0, 5, 6 and 11
    steps = View(t, uint8, (2, 2, 4) if region is HBM else (1, 2, 2, 4), strides, 0)
    for byte in range(16):
        one = View(t, uint8, (1, 1), (64, 1), byte)
        touched = byte in {*range(4), *range(5, 10), *range(11, 15)}
        assert needs(copy(steps, a), copy(whole(tile(2)), one)) == [(), (0,) if touched else ()]


def test_columns_of_a_matrix_in_device_memory_do_not_meet() -> None:
    out, a = tile(0, (4096, 4096), HBM), whole(tile(1, (128, 512)))
    tiles = [View(out, float32, (128, 512), (4096, 1), c * 512) for c in range(8)]
    assert needs(*[copy(t, a) for t in tiles], copy(a, tiles[3])) == [()] * 8 + [tuple(range(8))]
    assert needs(*[copy(t, a) for t in tiles], copy(whole(tile(2, (128, 512))), tiles[3])) == [()] * 8 + [(3,)]


def test_placement_decides_what_shares_bytes() -> None:
    a, b, c = tile(0, (128, 64)), tile(1, (128, 64)), whole(tile(2))
    items = [copy(whole(a), c), copy(whole(b), c)]
    assert needs(*items) == [(), ()]
    assert needs(*items, placement={0: (0, 0), 1: (0, 128), 2: (0, 4096)}) == [(), (0,)]
    assert needs(*items, placement={0: (0, 0), 1: (0, 256), 2: (0, 4096)}) == [(), ()]
    assert needs(*items, placement={0: (0, 0), 1: (128, 0), 2: (0, 4096)}) == [(), ()]


def test_explicit_addresses_lie_in_the_same_memory() -> None:
    a = Buffer(0, "a", SBUF, (32, 64), float32, (32, 0))
    b = Buffer(1, "b", SBUF, (64, 64), float32)
    items = [copy(whole(a), whole(tile(2))), copy(whole(b), whole(tile(2)))]
    assert needs(*items, placement={1: (0, 0), 2: (0, 1024)}) == [(), (0,)]


def test_sbuf_and_psum_are_two_memories() -> None:
    a, b = Buffer(0, "a", SBUF, (32, 64), float32, (0, 0)), Buffer(1, "b", PSUM, (32, 64), float32, (0, 0))
    assert needs(copy(whole(a), whole(tile(2))), copy(whole(b), whole(tile(2)))) == [(), ()]


def test_accumulation_reads_and_takes_whole_granules() -> None:
    psum, x = Buffer(0, "p", PSUM, (128, 8), bfloat16, (0, 0)), whole(tile(1))
    low, high = View(psum, bfloat16, (128, 1), (8, 1), 0), View(psum, bfloat16, (128, 1), (8, 1), 1)

    def matmul(dst: View, accumulate: bool | None) -> Issued:
        return issue("nc_matmul", dst=dst, stationary=x, moving=x, accumulate=accumulate)

    assert needs(matmul(low, False), copy(high, x)) == [(), ()]
    assert needs(matmul(low, None), copy(high, x)) == [(), (0,)]
    empty = Program("k", "trn2", 0, 1)
    kinds = [r.kind for r in why([matmul(low, False), matmul(low, True)], 0, 1, empty, TRN2)]
    assert kinds == ["raw", "waw"]


def test_a_dynamic_row_leaves_other_columns_alone() -> None:
    out, a, row = tile(0, (64, 512), HBM), whole(tile(1)), VirtualRegister(3)
    left, right = View(out, float32, (1, 64), (512, 1), 0), View(out, float32, (1, 64), (512, 1), 64)
    moving = [copy(view._replace(dynamic=ScalarOffset(row, 512)), a) for view in (left, right)]
    found = dependences(
        [*moving, copy(whole(tile(2)), left._replace(offset=512 * 40))], Program("k", "trn2", 0, 1), TRN2
    )
    assert found == [(), (), (0,)]


def test_the_index_of_a_gather_is_read() -> None:
    table, index = tile(0, (64, 32), HBM), tile(1, (128, 1), dtype=int32)
    rows = View(table, float32, (128, 32), (32, 1), 0, VectorOffset(whole(index), 32))
    load = issue("dma_copy", engine.dma, dst=whole(tile(2, (128, 32))), src=rows)
    assert needs(copy(whole(index), whole(tile(3))), load, copy(whole(index), whole(tile(3)))) == [(), (0,), (1,)]


def test_registers() -> None:
    r, s = VirtualRegister(0), VirtualRegister(1)
    move = issue("register_move", dst=r, src=1)
    load = issue("register_move", dst=s, src=r)
    t = whole(tile(0))._replace(dynamic=ScalarOffset(r, 1), shape=(128, 1))
    use = copy(whole(tile(1)), t)
    assert needs(move, load, use, move, load) == [(), (0,), (0,), (1, 2), (3,)]


def test_engines_have_their_own_accumulators_and_generators() -> None:
    def random(key: int, by: engine) -> Issued:
        return issue("rand2", by, dst=whole(tile(key)), min=0.0, max=1.0)

    assert needs(random(0, engine.vector), random(1, engine.gpsimd), random(2, engine.vector)) == [(), (), (0,)]
    empty = Program("k", "trn2", 0, 1)
    both = [random(0, engine.vector), random(1, engine.vector)]
    assert why(both, 0, 1, empty, TRN2) == (("effect", "random vector"),)


def test_printing_keeps_its_order() -> None:
    say = [issue("device_print", prefix="", tensor=whole(tile(key))) for key in range(3)]
    assert needs(*say) == [(), (0,), (1,)]


def test_a_rendezvous_orders_device_memory_only() -> None:
    h, a, b = (whole(tile(key, region=HBM if key == 0 else SBUF)) for key in range(3))
    meet = issue("barrier", cores=(0, 1))
    assert needs(copy(h, a), copy(b, a), meet, copy(b, a), copy(b, h)) == [(), (), (0,), (1,), (2, 3)]
    assert needs(copy(h, a), issue("barrier", cores=(0,)), copy(b, a)) == [(), (), ()]


def test_a_fence_orders_everything() -> None:
    a, b, c = (whole(tile(key)) for key in range(3))
    fence = issue("everything")
    found = needs(copy(b, a), copy(c, a), fence, copy(b, a), copy(c, a), fence)
    assert found == [(), (), (0, 1), (2,), (2,), (3, 4)]


def test_edges_and_ordered_regions_count_from_the_segment() -> None:
    def block(first: int) -> list[Issued]:
        return [copy(whole(tile(first + k)), whole(tile(99))) for k in range(3)]

    loop = ForLoop(0, 4, 1, VirtualRegister(0), Block([], [*block(10)]), UNKNOWN)
    made = Program("k", "trn2", 0, 1, body=Block([], [*block(0), loop, *block(20)]))
    made.edges, made.fences = [(0, 2), (3, 4), (1, 7)], [(6, 9)]
    found = list(segments_of(made))
    assert [(s.first, s.after, s.walk, s.edges, s.fences) for s in found] == [
        (0, 3, 0, [(0, 2)], []),
        (0, 3, 3, [(0, 1)], []),
        (4, 7, 6, [], [(0, 3)]),
    ]
    of = [dependences(s.items, made, TRN2, s.edges, s.fences) for s in found]
    assert of == [[(), (), (0,)], [(), (0,), ()], [(), (0,), (1,)]]
    assert why(found[2].items, 0, 2, made, TRN2, (), [(0, 3)]) == (("edge", "schedule"),)


def test_members_of_a_sequence_are_operands() -> None:
    a, b, c = (whole(tile(key, region=HBM)) for key in range(3))
    add = issue("dma_compute", engine.dma, dst=c, srcs=(a, b), reduce_op=None)
    assert needs(copy(b, c), add) == [(), (0,)]


def test_bytes_beyond_a_type() -> None:
    t = tile(0, (2, 8), dtype=uint8)
    wide, narrow = View(t, float32, (2, 1), (2, 1), 1), View(t, uint8, (2, 1), (8, 1), 5)
    assert needs(copy(wide, whole(tile(1))), copy(narrow, whole(tile(1)))) == [(), (0,)]
