"""Where the written order needs more memory than there is, another one of the same instructions may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import VerificationError
from nki.passes import allocate_and_schedule
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.analysis.memory_usage import usage
from nki.passes.scheduling.pressure_reordering import orders_under_pressure
from nki.spec.program import Issued, Program
from tests.passes.allocation.support import TRN2, context, results, traced

RNG = np.random.default_rng(5)


def sums_emptied_late(x: Any, tiles: int = 10) -> Any:
    """A bank for each sum, all filled before the first is emptied, by way of a scale that is loaded late."""
    out = nl.ndarray((128, tiles * 512), dtype=nl.float32, buffer=nl.shared_hbm)
    moving = nl.ndarray((16, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=moving, src=x[0:16, 0:512])
    sums = [nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum) for _ in range(tiles)]
    for number in range(tiles):
        for half in range(2):
            stationary = nl.ndarray((16, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=stationary, src=x[0:16, half * 128 : half * 128 + 128])
            nisa.nc_matmul(dst=sums[number], stationary=stationary, moving=moving)
    scale = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=scale, src=x[:, 0:1])
    for number in range(tiles):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=sums[number], op0=nl.multiply, operand0=scale)
        nisa.dma_copy(dst=out[:, number * 512 : number * 512 + 512], src=tile)
    return out


def loads_made_early(x: Any) -> Any:
    """All of a matrix is loaded, more than SBUF holds, before the first part is used."""
    out = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(total, value=0.0)
    parts = [nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf) for _ in range(x.shape[1] // 8192)]
    for number, part in enumerate(parts):
        nisa.dma_copy(dst=part, src=x[:, number * 8192 : (number + 1) * 8192])
    for part in parts:
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


def sums_in_a_loop(x: Any) -> Any:
    """As `sums_emptied_late`, in the body of a loop on the device, around a tensor that lives through all trips."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(total, value=1.0)
    for _ in nl.dynamic_range(3):
        moving = nl.ndarray((16, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=moving, src=x[0:16])
        sums = [nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum) for _ in range(9)]
        for tile in sums:
            nisa.nc_matmul(dst=tile, stationary=moving[:, 0:128], moving=moving)
        for tile in sums:
            nisa.tensor_tensor(dst=total, data1=tile, data2=total, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


KERNELS: list[tuple[Callable[..., Any], np.ndarray]] = [
    (sums_emptied_late, RNG.standard_normal((128, 512)).astype(np.float32)),
    (loads_made_early, RNG.standard_normal((128, 8 * 8192)).astype(np.float32)),
    (sums_in_a_loop, RNG.standard_normal((128, 512)).astype(np.float32)),
]


@pytest.mark.parametrize(("kernel", "array"), KERNELS, ids=lambda v: v.__name__ if callable(v) else "")
def test_a_kernel_that_fits_in_another_order_is_compiled(kernel: Callable[..., Any], array: np.ndarray) -> None:
    before = traced(kernel, array)
    assert any(each.bound > each.capacity for each in usage(before, TRN2)), "the written order does not fit"
    after = allocate_and_schedule.PASS.run(before, context())
    assert all((each.peak or 0) <= each.capacity for each in usage(after, TRN2))
    expected = results(before, array)
    assert expected[1] == []
    assert results(after, array) == expected
    compiled = nki.jit(kernel)(array)
    np.testing.assert_array_equal(compiled, nki.simulate(kernel)(array))


@pytest.mark.parametrize(("kernel", "array"), KERNELS, ids=lambda v: v.__name__ if callable(v) else "")
def test_every_order_keeps_every_dependence(kernel: Callable[..., Any], array: np.ndarray) -> None:
    before = traced(kernel, array)
    orders = list(orders_under_pressure(before, TRN2))
    assert orders
    for after in orders:
        for old, new in zip(_segments(before), _segments(after), strict=True):
            place = {id(issued.arguments): at for at, issued in enumerate(new)}
            needs = dependences(old, before, TRN2)
            for consumer, producers in enumerate(needs):
                for producer in producers:
                    assert place[id(old[producer].arguments)] < place[id(old[consumer].arguments)]


def test_the_written_order_stays_where_it_fits() -> None:
    fitting = traced(lambda x: sums_emptied_late(x, tiles=8), KERNELS[0][1])
    assert list(next(orders_under_pressure(fitting, TRN2)).body.walk()) == list(fitting.body.walk())


def test_no_more_moves_than_it_takes() -> None:
    """Two of ten sums have no bank at first: as many are emptied early, each just before its bank is needed."""
    before = traced(sums_emptied_late, KERNELS[0][1])
    order = [issued.instruction for issued in next(orders_under_pressure(before, TRN2)).body.walk()]
    assert order[: order.index(nisa.tensor_scalar)].count(nisa.nc_matmul) == 16
    last_product = len(order) - 1 - order[::-1].index(nisa.nc_matmul)
    assert order[:last_product].count(nisa.tensor_scalar) == 2


def in_its_own_order(x: Any) -> Any:
    """The kernel says that nothing may move."""
    with nl.no_reorder():
        return sums_emptied_late(x)


def needed_together(x: Any) -> Any:
    """Nine sums that are added twice, one after the other: each is needed until all were added once."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    moving = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=moving, src=x)
    sums = [nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum) for _ in range(9)]
    for tile in sums:
        nisa.nc_matmul(dst=tile, stationary=moving[:, 0:128], moving=moving)
    kept = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(kept, value=0.0)
    for tile in (*sums, *sums):
        nisa.tensor_tensor(dst=kept, data1=tile, data2=kept, op=nl.add)
    nisa.dma_copy(dst=out, src=kept)
    return out


@pytest.mark.parametrize("kernel", [in_its_own_order, needed_together])
def test_what_no_order_can_hold_is_refused(kernel: Callable[..., Any]) -> None:
    program = traced(kernel, KERNELS[0][1])
    with pytest.raises(VerificationError, match="PSUM banks are needed at once") as caught:
        allocate_and_schedule.PASS.run(program, context())
    assert caught.value.code == "memory.capacity"


def _segments(program: Program) -> list[list[Issued]]:
    return [segment.items for segment in segments_of(program)]
