"""Allocation of whole programs: nothing that lives together shares bytes, and kernels compute the same in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from examples.flash_attention import flash_attention
from examples.tensor_add import tensor_add
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.compiler import AddressRotation
from nki.core.tensor import MemoryRegion
from nki.passes.allocation.addresses import PASS
from nki.passes.analysis.memory_usage import usage
from nki.spec.program import Block, Program
from tests.ir.kernels import array, looped, scaled_sum
from tests.isa.executed import all_examples
from tests.isa.registry import Legal
from tests.passes.allocation.support import (
    TRN2,
    at_addresses,
    blocks,
    box,
    buffer,
    context,
    lives,
    loop,
    meet,
    program,
    results,
    traced,
    use,
)
from tests.together import together

MODES = [AddressRotation.AUTO, AddressRotation.DISABLE]


def check(placed: Program) -> None:
    """Whoever lives at the same position and was placed shares no byte; addresses are legal."""
    placement = placed.placement
    assert placement is not None
    living = lives(placed.body)
    assert set(placement) == {key for key, (made, _) in living.items() if made.address is None}
    for key in placement:
        made, _ = living[key]
        psum = made.region is MemoryRegion.psum
        limit = TRN2.psum.bytes_per_partition if psum else TRN2.sbuf.usable_bytes_per_partition
        partition, byte = placement[key]
        assert partition == 0
        assert byte + made.row_bytes <= limit
        assert byte % (TRN2.psum.bank_bytes if psum else made.dtype.itemsize) == 0
    for (a, when_a), (b, when_b) in combinations(living.values(), 2):
        if a.region is b.region and when_a & when_b and not (a.address and b.address):
            assert not meet(box(a, placement), box(b, placement)), (a, b)


@given(blocks(), st.sampled_from(MODES))
def test_random_programs(block: Block, mode: AddressRotation) -> None:
    given_program = program(block)
    placed = PASS.run(given_program, context(mode))
    check(placed)
    assert placed.placement == PASS.run(given_program, context(mode)).placement
    assert given_program.placement is None


@given(blocks(explicit=False, most=60_000))
def test_programs_that_nearly_fill_the_memory(block: Block) -> None:
    given_program = program(block)
    if all(each.bound <= each.capacity * 0.8 for each in usage(given_program, TRN2)):
        check(PASS.run(given_program, context()))


def test_unused_tensors_and_hbm_get_nothing() -> None:
    unused, hbm, used = buffer(0, 8), buffer(1, 8, "shared_hbm"), buffer(2, 8)
    assert PASS.run(program(Block([unused, hbm, used], [use(used, hbm)])), context()).placement == {2: (0, 0)}


def test_large_psum_tensors_take_consecutive_banks() -> None:
    small, large, other = buffer(0, 100, "psum"), buffer(1, 5000, "psum"), buffer(2, 2048, "psum")
    items = [use(small), use(large), use(other), use(small, large), use(small, other)]
    placement = PASS.run(program(Block([small, large, other], items)), context(AddressRotation.DISABLE)).placement
    assert placement is not None
    starts = sorted((byte // 2048, key) for key, (_, byte) in placement.items())
    banks = [bank for start, key in starts for bank in range(start, start + {0: 1, 1: 3, 2: 1}[key])]
    assert sorted(banks) == [0, 1, 2, 3, 4]


def test_where_banks_may_be_shared_small_tensors_cross_none() -> None:
    psum = replace(TRN2.psum, allocations_start_at_bank=False)
    target = replace(TRN2, psum=psum)
    made = [buffer(n, 1500 if n % 2 else 400, "psum") for n in range(6)]
    items = [*(use(each) for each in made), *(use(each, each) for each in made)]
    for mode in MODES:
        placement = PASS.run(program(Block(made, items)), context(mode, target)).placement
        assert placement is not None
        assert all(placement[b.id][1] // 2048 == (placement[b.id][1] + b.row_bytes - 1) // 2048 for b in made)
        assert len({placement[b.id][1] // 2048 for b in made}) < 6


def test_explicit_addresses_stay_and_are_packed_around() -> None:
    fixed, free = buffer(0, 100, address=(0, 0)), buffer(1, 50)
    for mode in AddressRotation:
        placed = PASS.run(program(Block([fixed, free], [use(fixed), use(free), use(fixed, free)])), context(mode))
        assert placed.placement == {1: (0, 100)}


def test_a_tensor_of_a_loop_does_not_meet_one_that_is_used_around_it() -> None:
    outer, inner = buffer(0, 100), buffer(1, 100)
    block = Block([outer], [use(outer), loop(Block([inner], [use(inner)])), use(outer, outer)])
    check(PASS.run(program(block), context(AddressRotation.DISABLE)))


def test_rotation_keeps_bytes_at_rest() -> None:
    """Tiles of one line one after the other: the same bytes come round only after the whole memory was used."""
    tiles = [buffer(n, 20_000) for n in range(30)]
    block = Block(tiles, [use(tile) for tile in tiles])
    rotated = PASS.run(program(block), context()).placement
    tight = PASS.run(program(block), context(AddressRotation.DISABLE)).placement
    assert rotated is not None and tight is not None
    assert [rotated[n] for n in range(10)] == [(0, 20_000 * n) for n in range(10)]
    assert rotated[10] == (0, 0)
    assert set(tight.values()) == {(0, 0)}


def test_psum_rotates_through_its_banks() -> None:
    tiles = [buffer(n, 2048, "psum") for n in range(12)]
    placement = PASS.run(program(Block(tiles, [use(tile) for tile in tiles])), context()).placement
    assert placement is not None
    assert [placement[n][1] // 2048 for n in range(12)] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]


# --- kernels


def attention_arrays(sequence: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    shapes = [(128, sequence), (128, sequence), (sequence, 128)]
    return tuple((rng.standard_normal(shape) / 4).astype(ml_dtypes.bfloat16) for shape in shapes)


def tiled_matmul(a: Any, b: Any) -> Any:
    """``a.T @ b`` with two tiles of the contraction, accumulated in PSUM, tiles of the operands loaded once."""
    out = nl.ndarray((a.shape[1], b.shape[1]), nl.float32, buffer=nl.shared_hbm)
    height = a.shape[0] // 2
    steps = range(0, a.shape[0], height)
    left, right = [], []
    for step in steps:
        left.append(nl.ndarray((height, a.shape[1]), a.dtype, buffer=nl.sbuf))
        right.append(nl.ndarray((height, b.shape[1]), b.dtype, buffer=nl.sbuf))
        nisa.dma_copy(dst=left[-1], src=a[step : step + height, :])
        nisa.dma_copy(dst=right[-1], src=b[step : step + height, :])
    for row in range(0, a.shape[1], 128):
        for column in range(0, b.shape[1], 512):
            total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
            for x, y in zip(left, right, strict=True):
                nisa.nc_matmul(total, x[:, row : row + 128], y[:, column : column + 512])
            tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(tile, total)
            nisa.dma_copy(dst=out[row : row + 128, column : column + 512], src=tile)
    return out


def wide_sums(a: Any) -> Any:
    """Tensors of many sizes, a few of which live long."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=kept, src=a)
    for step in range(12):
        width = (step * 37) % a.shape[1] + 1
        x = nl.ndarray((128, width), a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((128, width), nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=x, data=kept[:, 0:width], op0=nl.multiply, operand0=0.5)
        nisa.tensor_copy(dst=y, src=x)
        nisa.tensor_tensor(dst=kept[:, 0:width], data1=x, data2=y, op=nl.add)
    nisa.dma_copy(dst=out, src=kept)
    return out


KERNELS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (flash_attention.func, attention_arrays(1024)),
    (tensor_add.func, (array(), array())),
    (scaled_sum, (array(), array())),
    (looped, (array(),)),
    (tiled_matmul, tuple(np.random.default_rng(n).standard_normal((32, 1024)).astype(np.float32) for n in (1, 2))),
    (wide_sums, (array(),)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kernel", "arrays"), KERNELS, ids=lambda v: v.__name__ if callable(v) else "")
def test_kernels_are_placed_legally(kernel: Callable[..., Any], arrays: Any, mode: AddressRotation) -> None:
    check(PASS.run(traced(kernel, *arrays), context(mode)))


@pytest.mark.parametrize(
    ("kernel", "arrays"), [k for k in KERNELS if k[0] is not looped], ids=lambda v: v.__name__ if callable(v) else ""
)
def test_kernels_compute_the_same_at_their_addresses(kernel: Callable[..., Any], arrays: Any) -> None:
    unplaced = traced(kernel, *arrays)
    expected = results(unplaced, *arrays)
    for mode in MODES:
        assert results(at_addresses(PASS.run(unplaced, context(mode))), *arrays) == expected, mode


EXAMPLES = [e for e in all_examples() if isinstance(e, Legal) and e.lnc is None and "trn2" in e.targets]


@together("example", EXAMPLES, by=lambda example: example.instruction)
def test_examples_of_instructions_compute_the_same_at_their_addresses(example: Legal) -> None:
    """Packed tightly: so few tensors are not rotated onto each other's bytes."""
    arrays = example.arguments()
    unplaced = traced(example.kernel, *arrays)
    expected, reported = results(unplaced, *arrays)
    found, _ = results(at_addresses(PASS.run(unplaced, context(AddressRotation.DISABLE))), *arrays)
    assert found == expected or "memory.uninitialized" in reported


def test_traced_kernels_are_packed_tightly() -> None:
    """Geometric mean of peak over what is live at once, SBUF and PSUM."""
    ratios = []
    for kernel, arrays in KERNELS:
        for each in usage(PASS.run(traced(kernel, *arrays), context(AddressRotation.DISABLE)), TRN2):
            if each.bound:
                assert each.peak is not None
                ratios.append(each.peak / each.bound)
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) <= 1.01
    assert min(ratios) >= 1
