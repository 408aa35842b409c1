"""Spilled kernels fit, and compute what they computed before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import VerificationError
from nki.core.tensor import MemoryRegion
from nki.ir.build import build
from nki.ir.verify import verify as verified
from nki.passes.allocation.addresses import PASS, allocate
from nki.passes.allocation.lifetime_holes import tensors
from nki.passes.allocation.spill import spill
from nki.passes.analysis.memory_usage import usage
from nki.spec.program import Program
from nki.spec.verify import verify
from nki.target.model import Target
from nki.testing.equality import differences
from tests.passes.allocation import overflowing
from tests.passes.allocation.support import TRN2, at_addresses, context, results, traced

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


SPILLABLE: list[tuple[Callable[..., Any], np.ndarray, int]] = [
    (overflowing.too_many_tiles, normal(128, 65536), 2),
    (overflowing.too_many_banks, normal(128, 1024), 1),
    (overflowing.parts_of_banks, normal(128, 490), 2),
    (overflowing.long_way_round, normal(128, 9 * 8192), 6),
    (overflowing.many_sums, normal(128, 512).astype(ml_dtypes.bfloat16), 4),
]


@pytest.mark.parametrize(("kernel", "array", "count"), SPILLABLE, ids=lambda v: v.__name__ if callable(v) else "")
def test_results_are_equal(kernel: Callable[..., Any], array: np.ndarray, count: int) -> None:
    before = traced(kernel, array)
    placed = allocate(before, context(), spilling=True)
    after = placed.program
    assert {finding.code for finding in placed.findings} == {"memory.spill"}
    assert len(brought_back(after)) == count
    expected = results(before, array)
    assert expected[1] == []
    assert results(after, array) == expected
    assert results(at_addresses(after), array) == expected


@pytest.mark.parametrize(("kernel", "array", "count"), SPILLABLE, ids=lambda v: v.__name__ if callable(v) else "")
def test_spilled_programs_are_legal(kernel: Callable[..., Any], array: np.ndarray, count: int) -> None:
    after, _ = spill(traced(kernel, array), TRN2)
    assert [finding for issued in after.body.walk() for finding in verify(issued, TRN2)] == []
    assert all(issued.location.frames for issued in after.body.walk())
    ids = [made.id for made in after.body.all_buffers()]
    assert len(ids) == len(set(ids))
    (read,) = verified(build([after]), TRN2)
    assert differences(read, after) == []


def test_the_tensors_whose_next_use_is_farthest_go() -> None:
    after, findings = spill(traced(overflowing.long_way_round, normal(128, 9 * 8192)), TRN2)
    assert brought_back(after) == ["tile4", "tile5", "tile5", "tile6", "tile6", "tile7"]
    assert [finding.message for finding in findings] == [
        "tile5 and 3 more of its line are kept in HBM 6 times, first from overflowing.py:76 to overflowing.py:83: "
        "25165824 bytes are written and 25165824 read"
    ]
    assert findings[0].facts["tensors"] == 4


def brought_back(program: Program) -> list[str]:
    """The tensors that come back from where they waited, once for each time."""
    names = [buffer.name for buffer in program.body.all_buffers() if ".back" in buffer.name]
    return sorted(name.rpartition(".")[0] for name in names)


def waiting(a: Any, change: str) -> Any:
    """A tile is read, waits, is read, waits, and is read."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((128, 16384), a.dtype, buffer=nl.sbuf, name="kept")
    nisa.dma_copy(dst=kept, src=a)
    if change == "the tile":
        nisa.tensor_scalar(dst=kept[0:1], data=kept[0:1], op0=nl.add, operand0=1.0)
    for trip in range(2):
        large = [nl.ndarray((128, 16384), a.dtype, buffer=nl.sbuf) for _ in range(3)]
        for tile in large:
            nisa.memset(dst=tile, value=1.0)
        nisa.tensor_tensor(dst=large[0], data1=large[1], data2=large[2], op=nl.add)
        nisa.dma_copy(dst=out[:, 0:16384], src=large[0])
        if change == "the source" and trip:
            nisa.dma_copy(dst=a[0:64], src=large[0][0:64])
        nisa.dma_copy(dst=out[:, 0:16384], src=kept)
    return out


def spilled_copies(change: str) -> list[Any]:
    array = normal(128, 16384)
    before = traced(waiting, array, change)
    placed = allocate(before, context(), spilling=True)
    assert results(placed.program, array) == results(before, array)
    again = {"": [True], "the source": [False, True], "the tile": [False]}[change]
    assert sorted("loaded again" in finding.message for finding in placed.findings) == again
    return [i.arguments for i in placed.program.body.walk() if i.instruction is nisa.dma_copy]


def test_what_is_still_in_hbm_is_not_stored_again() -> None:
    """One copy out, two copies in."""
    copies = spilled_copies("the tile")
    assert [c.src.buffer.name for c in copies if c.dst.buffer.name == "kept.away"] == ["kept"]
    assert [c.dst.buffer.name for c in copies if c.src.buffer.name == "kept.away"] == ["kept.back0", "kept.back1"]


def test_what_a_load_brought_is_loaded_again() -> None:
    copies = spilled_copies("")
    assert not [c for c in copies if "away" in c.dst.buffer.name]
    assert [c.dst.buffer.name for c in copies if c.src.buffer.name == "a"] == ["kept", "kept.back0", "kept.back1"]


def test_what_is_written_at_its_source_is_copied_elsewhere() -> None:
    """The source changes in the second gap, so that the first one may load again, and the second one may not."""
    copies = spilled_copies("the source")
    assert [c.dst.buffer.name for c in copies if c.src.buffer.name == "a"] == ["kept", "kept.back0"]
    assert [c.src.buffer.name for c in copies if c.dst.buffer.name == "kept.away"] == ["kept.back0"]
    assert [c.dst.buffer.name for c in copies if c.src.buffer.name == "kept.away"] == ["kept.back1"]


def test_edges_and_fences_follow_their_instructions() -> None:
    before = traced(overflowing.too_many_tiles, normal(128, 65536))
    order = list(before.body.walk())
    before.edges, before.fences = [(0, 8), (3, 20)], [(9, 13), (20, 23)]
    after, findings = spill(before, TRN2)
    assert findings
    new = list(after.body.walk())
    where = {id(issued.location): n for n, issued in enumerate(new)}
    assert len(where) < len(new)
    for (producer, consumer), (p, c) in zip(before.edges, after.edges, strict=True):
        assert new[p].instruction is order[producer].instruction
        assert new[c].instruction is order[consumer].instruction
        assert new[p].arguments.dst.shape == order[producer].arguments.dst.shape
        assert new[c].arguments.dst.offset == order[consumer].arguments.dst.offset
    for (first, end), (f, e) in zip(before.fences, after.fences, strict=True):
        assert new[f].arguments.dst.offset == order[first].arguments.dst.offset
        assert new[e - 1].arguments.dst.offset == order[end - 1].arguments.dst.offset


def test_what_cannot_be_spilled_is_an_error() -> None:
    with pytest.raises(VerificationError) as caught:
        allocate(traced(overflowing.in_a_loop, normal(128, 8192)), context(), spilling=True)
    assert caught.value.code == "memory.capacity"


def around(a: Any, first: int) -> Any:
    """Two tensors wait: one has an address, one is written but for its first column, and read from `first` on."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    partly = nl.ndarray((128, 16384), a.dtype, buffer=nl.sbuf, name="partly")
    fixed = nl.ndarray((128, 16384), a.dtype, buffer=nl.sbuf, name="fixed", address=(0, 0))
    nisa.memset(dst=partly[:, 1:], value=0.0)
    nisa.memset(dst=fixed, value=0.0)
    large = [nl.ndarray((128, 16384), a.dtype, buffer=nl.sbuf) for _ in range(2)]
    for tile in large:
        nisa.memset(dst=tile, value=1.0)
    nisa.tensor_tensor(dst=large[0], data1=large[0], data2=large[1], op=nl.add)
    nisa.dma_copy(dst=out, src=large[0])
    nisa.tensor_tensor(dst=fixed[:, first:], data1=fixed[:, first:], data2=partly[:, first:], op=nl.add)
    nisa.dma_copy(dst=out, src=fixed)
    return out


@pytest.mark.parametrize("first", [0, 1])
def test_of_a_tensor_what_is_used_moves_once_all_of_that_is_written(first: int) -> None:
    _, findings = spill(traced(around, normal(128, 16384), first), TRN2)
    moved = {finding.facts["tensor"]: finding.facts["saved"] for finding in findings}
    assert "fixed" not in moved
    assert moved.get("partly") == (None if first == 0 else 128 * 16383 * 4)


def test_a_program_that_fits_stays_as_it_is() -> None:
    before = traced(overflowing.too_many_tiles, normal(128, 16384))
    assert spill(before, TRN2) == (before, [])
    assert allocate(before, context(), spilling=True).program.placement == PASS.run(before, context()).placement


# --- random kernels with little memory


def little(tiles: int) -> Target:
    """A target whose SBUF holds so many tiles of the kernels below."""
    return replace(TRN2, sbuf=replace(TRN2.sbuf, usable_bytes_per_partition=tiles * 64))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)),
        st.tuples(st.just("loop"), st.integers(0, 6), st.integers(0, 6), st.integers(0, 2)),
        st.tuples(st.just("fill"), st.integers(0, 6), st.integers(0, 6), st.just(0)),
    ),
    max_size=25,
)


def random_kernel(steps: Any) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((7 * 128, 16), a.dtype, buffer=nl.shared_hbm)
        tiles = [nl.ndarray((128, 16), a.dtype, buffer=nl.sbuf, name=f"t{n}") for n in range(7)]
        for n, tile in enumerate(tiles):
            nisa.dma_copy(dst=tile, src=a[:, n * 16 : n * 16 + 16])
        for kind, x, y, z in steps:
            if kind == "add":
                nisa.tensor_tensor(dst=tiles[x], data1=tiles[y], data2=tiles[z], op=nl.add)
            elif kind == "fill":
                nisa.tensor_scalar(dst=tiles[x][:, 0:8], data=tiles[y][:, 8:16], op0=nl.multiply, operand0=0.5)
            else:
                for _ in nl.dynamic_range(z):
                    nisa.tensor_tensor(dst=tiles[x], data1=tiles[x], data2=tiles[y], op=nl.subtract)
        for n, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[n * 128 : n * 128 + 128, :], src=tile)
        return out

    return kernel


@settings(max_examples=40)
@given(STEPS, st.sampled_from([3, 4, 5, 6]))
def test_random_kernels_fit_and_compute_the_same(steps: Any, tiles: int) -> None:
    array = normal(128, 7 * 16)
    before = traced(random_kernel(steps), array)
    target = little(tiles)
    after: Program = allocate(before, context(target=target), spilling=True).program
    sbuf, _ = usage(after, target)
    assert sbuf.peak is not None
    assert sbuf.peak <= tiles * 64
    expected = results(before, array)
    assert results(after, array) == expected
    assert results(at_addresses(after), array) == expected


# --- against all choices


def reading(order: Any) -> Callable[..., Any]:
    """Four tiles are loaded, and read in some order."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray((128, 16), a.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((128, 16), a.dtype, buffer=nl.sbuf, name="total")
        nisa.memset(dst=total, value=0.0)
        tiles = [nl.ndarray((128, 16), a.dtype, buffer=nl.sbuf, name=f"t{n}") for n in range(4)]
        for n, tile in enumerate(tiles):
            nisa.dma_copy(dst=tile, src=a[:, n * 16 : n * 16 + 16])
        for n in order:
            nisa.tensor_tensor(dst=total, data1=total, data2=tiles[n], op=nl.add)
        nisa.dma_copy(dst=out, src=total)
        return out

    return kernel


def fewest(program: Program, most: int) -> int | None:
    """Over all sets of gaps, the least number with which no more than so many tensors are live at once."""
    uses = [[(use.first, use.last) for use in each.uses] for each in tensors(program, MemoryRegion.sbuf)]
    gaps = [(a[1] + 1, b[0]) for own in uses for a, b in pairwise(own) if a[1] + 1 < b[0]]
    live = [sum(own[0][0] <= at <= own[-1][1] for own in uses if own) for at in range(len(list(program.body.walk())))]
    for count in range(len(gaps) + 1):
        for chosen in combinations(gaps, count):
            if all(n - sum(first <= at < end for first, end in chosen) <= most for at, n in enumerate(live)):
                return count
    return None


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=9), st.sampled_from([3, 4]))
def test_no_choice_brings_back_less(order: list[int], most: int) -> None:
    before = traced(reading(order), normal(128, 64))
    after, _ = spill(before, little(most))
    assert len(brought_back(after)) == fewest(before, most)
