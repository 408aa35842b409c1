"""The memory peak against a byte map that is painted instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
from nki.core.dtypes import uint8
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer, MemoryRegion, ScalarOffset, whole
from nki.passes.analysis.live_intervals import Fixed, Item
from nki.passes.analysis.pressure import MemoryPeak, load, memory_peak
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

CAPACITY = 4096


def use(*buffers: Buffer) -> Issued:
    """An instruction on one or two buffers; what it computes does not matter here."""
    views = [whole(buffer) for buffer in buffers]
    arguments = nisa.tensor_copy.arguments(dst=views[0], src=views[-1], engine=engine.vector, name=None)
    return Issued(nisa.tensor_copy, arguments, UNKNOWN, engine.vector)


def buffer(key: int, size: int, region: str = "sbuf", address: int | None = None, partitions: int = 128) -> Buffer:
    place = None if address is None else (0, address)
    return Buffer(key, f"b{key}", MemoryRegion[region], (partitions, size), uint8, place)


def program(block: Block) -> Program:
    return Program("k", "trn2", 0, 1, body=block)


def loop(body: Block) -> ForLoop:
    return ForLoop(0, 4, 1, VirtualRegister(0), body, UNKNOWN)


# --- written by hand


def test_an_empty_program_needs_nothing() -> None:
    assert memory_peak(program(Block())) == MemoryPeak(0, 0)


def test_tensors_that_do_not_meet_share() -> None:
    a, b = buffer(0, 100), buffer(1, 60)
    assert memory_peak(program(Block([a, b], [use(a), use(b)]))).sbuf == 100


def test_tensors_that_meet_add_up() -> None:
    a, b = buffer(0, 100), buffer(1, 60)
    assert memory_peak(program(Block([a, b], [use(a), use(b), use(a)]))).sbuf == 160


def test_a_tensor_that_is_used_in_a_loop_lives_during_all_of_it() -> None:
    a, b, c = buffer(0, 100), buffer(1, 60), buffer(2, 7)
    inside = Block([b, c], [use(a), use(b), use(c)])
    assert memory_peak(program(Block([a], [loop(inside)]))).sbuf == 160


def test_regions_are_counted_apart_and_hbm_not_at_all() -> None:
    a, b, c = buffer(0, 100), buffer(1, 60, "psum"), buffer(2, 500, "shared_hbm")
    assert memory_peak(program(Block([a, b, c], [use(a, b), use(c)]))) == MemoryPeak(100, 60)


def test_explicit_addresses_that_overlap_count_once() -> None:
    a, b, c = buffer(0, 100, address=0), buffer(1, 100, address=50), buffer(2, 10, address=400)
    assert memory_peak(program(Block([a, b, c], [use(a, b), use(c), use(a, b)]))).sbuf == 160


def test_what_happens_behind_the_last_position_is_left_out() -> None:
    items = [Item(0, 9, 100, 128, 4), Item(7, 8, 1000, 128, 4)]
    fixed = [Fixed(1, 12, 0, 10, 0, 128), Fixed(6, 7, 0, 50, 0, 128)]
    assert load(items, fixed, 3).tolist() == [100, 110, 110]
    assert load(items, fixed, 20)[:3].tolist() == [100, 110, 110]


def test_an_index_tensor_is_a_use() -> None:
    data, index = buffer(0, 100), buffer(1, 8)
    dynamic = whole(data)._replace(dynamic=ScalarOffset(whole(index), 1))
    read = nisa.tensor_copy.arguments(dst=dynamic, src=dynamic, engine=engine.vector, name=None)
    items: list[Any] = [use(index), use(data), Issued(nisa.tensor_copy, read, UNKNOWN, engine.vector)]
    assert memory_peak(program(Block([data, index], items))).sbuf == 108


# --- random programs against the oracle


@st.composite
def blocks(draw: st.DrawFn, outer: tuple[Buffer, ...] = (), depth: int = 2) -> Block:
    first = len(outer) * 100 + depth * 1000 + draw(st.integers(0, 10**6)) * 10**4
    made = [
        buffer(
            first + number,
            draw(st.integers(1, 64)),
            draw(st.sampled_from(["sbuf", "psum"])),
            draw(st.none() | st.integers(0, 200)),
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    known = (*outer, *made)
    items: list[Any] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["use", "use", "use", "for", "while"]))
        if kind == "use" and known:
            items.append(use(draw(st.sampled_from(known)), draw(st.sampled_from(known))))
        elif kind != "use" and depth:
            body = draw(blocks(known, depth - 1))
            items.append(loop(body) if kind == "for" else WhileLoop(VirtualRegister(0), body, UNKNOWN))
    return Block(made, items)


Path = tuple[int, ...]


def leaves(block: Block, path: Path = ()) -> Iterator[tuple[Path, Issued]]:
    """Every instruction with the positions that lead to it."""
    for position, item in enumerate(block.items):
        if isinstance(item, Issued):
            yield (*path, position), item
        else:
            yield from leaves(item.body, (*path, position))


def homes(block: Block, path: Path = ()) -> Iterator[tuple[Path, Buffer]]:
    """Every buffer with the positions that lead to its block."""
    for made in block.buffers:
        yield path, made
    for position, item in enumerate(block.items):
        if not isinstance(item, Issued):
            yield from homes(item.body, (*path, position))


def painted_peak(block: Block, region: MemoryRegion) -> int:
    """At each instruction, paint what is live into one map of bytes and count; free tensors get bytes of their own."""
    worst = 0
    everything = list(leaves(block))
    for at, _ in everything:
        memory = np.zeros(CAPACITY, bool)
        elsewhere = 0
        for home, made in homes(block):
            depth = len(home)
            if made.region is not region or at[:depth] != home:
                continue
            uses = [path[depth] for path, issued in everything if any(v.buffer is made for _, v in issued.views())]
            if not uses or not min(uses) <= at[depth] <= max(uses):
                continue
            if made.address is None:
                elsewhere += made.row_bytes
            else:
                memory[made.address[1] : made.address[1] + made.row_bytes] = True
        worst = max(worst, elsewhere + int(memory.sum()))
    return worst


@given(blocks())
def test_it_equals_the_painted_map(block: Block) -> None:
    found = memory_peak(program(block))
    assert found.sbuf == painted_peak(block, MemoryRegion.sbuf)
    assert found.psum == painted_peak(block, MemoryRegion.psum)
