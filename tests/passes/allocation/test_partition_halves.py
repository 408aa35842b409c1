"""Tensors of few partitions lie side by side where SBUF is too small for them, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.proofs import proof

import nki
import nki.isa as nisa
import nki.language as nl
from nki.compiler import AddressRotation, CompileConfig
from nki.core.errors import VerificationError
from nki.ir.build import build
from nki.ir.read import read
from nki.ir.text import from_text, to_text
from nki.passes import allocate_and_schedule
from nki.passes.allocation import addresses
from nki.passes.analysis.memory_usage import usage
from nki.passes.analysis.pressure import memory_peak
from nki.passes.context import Context
from nki.passes.pipeline import compile_programs
from nki.passes.proof.happens_before import check
from nki.passes.scheduling.pressure_reordering import orders_under_pressure
from nki.spec.program import Program
from nki.target.load import load_target
from nki.target.model import Target
from nki.testing.equality import differences
from tests.passes.allocation import partition_halves_kernels as kernels
from tests.passes.allocation.partition_halves_kernels import Kernel, pair
from tests.passes.allocation.support import TRN2, at_addresses, box, context, lives, meet, results, traced

HALF = 64


def wide(rows: int, dtype: Any = np.float32, target: Target = TRN2, share: float = 0.6) -> np.ndarray:
    """Small numbers that fill a share of SBUF's partitions."""
    columns = int(target.sbuf.usable_bytes_per_partition * share) // np.dtype(dtype).itemsize
    return (np.arange(rows * columns) % 97).reshape(rows, columns).astype(dtype)


def arranged(kernel: Kernel, array: np.ndarray, target: Target = TRN2) -> Program:
    return allocate_and_schedule.PASS.run(traced(kernel, array, target=target), context(target=target))


def starts(program: Program, least: int = 10_000) -> list[int]:
    """Where the large tiles of SBUF begin, in the order in which they are allocated."""
    assert program.placement is not None
    return [
        program.placement[made.id][0]
        for made in program.body.all_buffers()
        if made.id in program.placement and made.row_bytes >= least
    ]


def apart(program: Program) -> None:
    """No two tensors that are live at the same time share a byte."""
    assert program.placement is not None
    found = list(lives(program.body).values())
    boxes = [(made, at, box(made, program.placement)) for made, at in found]
    for number, (made, at, mine) in enumerate(boxes):
        assert mine[1] <= TRN2.partitions
        for other, also, theirs in boxes[:number]:
            assert made.region is not other.region or not at & also or not meet(mine, theirs)


# --- two tiles where one fitted


@pytest.mark.parametrize("name", ["trn1", "trn2", "trn3"])
def test_two_tiles_of_more_than_half_lie_side_by_side(name: str) -> None:
    target = load_target(name)
    array = wide(HALF, target=target)
    (program,) = compile_programs([traced(pair(), array, target=target)], context(target=target)).programs
    assert sorted(starts(program)) == [0, HALF]
    apart(program)
    assert check([program], target) == []


@pytest.mark.parametrize("kernel", [pair(), kernels.only_transferred], ids=["used", "transferred"])
def test_one_partition_more_is_too_much(kernel: Kernel) -> None:
    with pytest.raises(VerificationError) as caught:
        arranged(kernel, wide(HALF + 1))
    assert caught.value.code == "memory.capacity"


def test_compiled_and_eager_bits_are_the_same() -> None:
    kernel, array = nki.jit(pair(kernels.on_scalar, kernels.upper_part)), wide(HALF)
    compiled = kernel(array)
    assert compiled.tobytes() == nki.simulate(kernel)(array).tobytes()
    assert kernel.report is not None
    assert sorted(starts(kernel.report.programs[0])) == [0, HALF]


@pytest.mark.parametrize("kernel", [pair(kernels.into_all_partitions), kernels.in_a_loop], ids=["pair", "loop"])
def test_every_schedule_gives_the_same_bytes(kernel: Kernel) -> None:
    found = proof(kernel, [wide(2)], {}, stages=True, schedules=3)
    assert (found.refused, found.faults, found.schedules) == ("", (), 3)


MOVES: dict[str, Kernel] = {
    "DMA": kernels.only_transferred,
    "vector and DMA": pair(),
    "scalar": pair(kernels.on_scalar, kernels.on_scalar),
    "part of it": pair(kernels.upper_part, kernels.upper_part),
    "copied to others": pair(kernels.into_all_partitions, kernels.into_all_partitions),
    "one is held": pair(kernels.stationary),
    "the other is held": pair(None, kernels.on_gpsimd),
    "in a loop": kernels.in_a_loop,
}


@pytest.mark.parametrize("kernel", MOVES.values(), ids=MOVES)
def test_what_moves(kernel: Kernel) -> None:
    """The bytes are those of the program with the addresses in its buffers, so that wrong ones would meet."""
    array = wide(HALF)
    before = traced(kernel, array)
    after = allocate_and_schedule.PASS.run(before, context())
    assert sorted(starts(after)) == [0, HALF]
    apart(after)
    assert results(at_addresses(after), array) == (results(before, array)[0], [])


@pytest.mark.parametrize(("held", "expected"), [(0, [0, HALF]), (1, [HALF, 0])])
def test_the_one_that_is_held_stays(held: int, expected: list[int]) -> None:
    uses = [kernels.moving if number == held else None for number in range(2)]
    assert starts(arranged(pair(*uses), wide(HALF))) == expected


def test_an_explicit_tile_in_the_lower_half_leaves_the_upper_one() -> None:
    program = arranged(pair(addresses=((0, 0),)), wide(HALF))
    assert starts(program) == [HALF]
    apart(program)


@pytest.mark.parametrize("rotation", AddressRotation)
def test_it_needs_no_spilling_and_no_rotation(rotation: AddressRotation) -> None:
    """Where spilling is allowed, nothing is spilled: there are as many instructions as before."""
    before = traced(pair(), wide(HALF))
    config = CompileConfig(address_rotation=rotation, spill=True)
    settings = Context(TRN2, config=config)
    found = allocate_and_schedule.run(before, settings)
    after = found.program
    assert sorted(starts(after)) == [0, HALF]
    assert len(list(after.body.walk())) == len(list(before.body.walk()))
    assert found.findings == ()
    assert after.placement == allocate_and_schedule.PASS.run(before, settings).placement


# --- what stays

FLOAT, INTEGER = np.dtype(np.float32), np.dtype(np.int32)

STAYS: dict[str, tuple[Kernel, np.dtype[Any]]] = {
    "stationary": (pair(kernels.stationary, kernels.stationary), FLOAT),
    "moving": (pair(kernels.moving, kernels.moving), FLOAT),
    "stationary and moving": (pair(kernels.stationary, kernels.moving), FLOAT),
    "GpSimd": (pair(kernels.on_gpsimd, kernels.on_gpsimd), FLOAT),
    "scalar offset": (pair(kernels.by_scalar, kernels.by_scalar), FLOAT),
    "register": (pair(kernels.by_register, kernels.by_register), FLOAT),
    "index": (pair(kernels.as_index, kernels.as_index), INTEGER),
    "beside a dynamic address": (pair(kernels.beside_dynamic, kernels.beside_dynamic), FLOAT),
    "read with 128 partitions": (pair(kernels.with_all_partitions, kernels.with_all_partitions), FLOAT),
    "read with an address": (pair(kernels.with_an_address, kernels.with_an_address), FLOAT),
    "three": (kernels.as_written(pair(count=3)), FLOAT),
    "address in the upper half": (kernels.as_written(pair(count=3, addresses=((0, 0), (HALF, 0)))), FLOAT),
}


@pytest.mark.parametrize(("kernel", "dtype"), STAYS.values(), ids=STAYS)
def test_what_stays(kernel: Kernel, dtype: np.dtype[Any]) -> None:
    array = wide(HALF, dtype)
    with pytest.raises(VerificationError) as caught:
        arranged(kernel, array)
    assert caught.value.code == "memory.capacity"
    arranged(kernel, array[:, : array.shape[1] // 2])


def fits(program: Program) -> bool:
    """Whether all tensors have a place that begin at partition 0."""
    try:
        addresses.PASS.run(program, context())
    except VerificationError:
        return False
    return True


REORDERED: dict[str, tuple[Kernel, list[int]]] = {
    "three": (pair(count=3), [0, 0, HALF]),
    "address in the upper half": (pair(count=3, addresses=((0, 0), (HALF, 0))), [HALF]),
    "rotation": (kernels.rotated, [0, 0, 0, 0, 0, HALF, HALF]),
}


@pytest.mark.parametrize(("kernel", "expected"), REORDERED.values(), ids=REORDERED)
def test_another_order_and_two_halves_together(kernel: Kernel, expected: list[int]) -> None:
    """Neither the written order with tensors side by side nor another order without them has room."""
    share = 0.3 if kernel is kernels.rotated else 0.6
    array = wide(HALF, share=share)
    before = traced(kernel, array)
    assert not any(fits(each) for each in (before, *orders_under_pressure(before, TRN2)))
    program = arranged(kernel, array)
    assert sorted(starts(program)) == expected
    apart(program)
    assert results(program, array) == results(before, array)
    with pytest.raises(VerificationError):
        arranged(kernels.as_written(kernel), array)


def test_addresses_that_are_given_stay() -> None:
    """Both at the same bytes, as kernels may ask for; there is nothing to place."""
    program = arranged(pair(addresses=((0, 0), (0, 0))), wide(HALF))
    assert starts(program) == []
    assert {made.address for made in program.body.all_buffers() if made.row_bytes > 10_000 and made.on_chip} == {(0, 0)}


# --- together


def test_what_is_read_together_moves_together() -> None:
    after = arranged(kernels.read_together, wide(HALF, share=0.4))
    a, b, c, d = starts(after)
    assert (a, b) == (c, d)
    assert sorted((a, b)) == [0, HALF]
    apart(after)


def test_what_is_read_together_and_fits_on_no_side_stays() -> None:
    tiles: list[Any] = []

    def added(tile: Any) -> None:
        if tiles:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=tiles[-1], op=nl.add)
        tiles.append(tile)

    with pytest.raises(VerificationError) as caught:
        arranged(pair(added, added), wide(HALF))
    assert caught.value.code == "memory.capacity"


# --- what fits, and what is told of it


def test_what_fits_begins_at_partition_0() -> None:
    for kernel in (pair(), pair(count=5), kernels.read_together, kernels.in_a_loop):
        program = arranged(kernel, wide(HALF, share=0.19))
        assert program.placement
        assert {partition for partition, _ in program.placement.values()} == {0}


def test_usage_is_what_the_fullest_partition_needs() -> None:
    array = wide(HALF)
    before = traced(pair(), array)
    tile = array.shape[1] * 4
    assert usage(before, TRN2)[0].bound == 2 * tile
    after = allocate_and_schedule.PASS.run(before, context())
    sbuf, psum = usage(after, TRN2)
    assert sbuf.bound == memory_peak(after).sbuf == tile
    assert sbuf.peak is not None
    assert tile <= sbuf.peak <= sbuf.capacity
    assert (psum.bound, psum.peak) == (0, 0)


def test_the_partition_survives_in_ir() -> None:
    (program,) = compile_programs([traced(pair(), wide(HALF))], context()).programs
    (back,) = read(from_text(to_text(build([program]))))
    assert differences(program, back) == []
    assert back.placement == program.placement
    assert sorted(starts(back)) == [0, HALF]
    assert usage(back, TRN2)[0].bound == usage(program, TRN2)[0].bound
