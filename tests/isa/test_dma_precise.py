"""DMA with dynamic addresses while low precision keeps its float32 values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.isa import alu, dma_compute, dma_transpose
from tests.isa.examples.dma import gathered
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled, shared, simulate

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip


def round_trip(move: Any) -> Any:
    """float32 into bfloat16 tensors, moved there, and back into float32."""

    def kernel(data: Any, rows: Any) -> Any:
        table, index = shared(data, BF16), load(rows)
        moved = move(table, index)
        out = nl.ndarray(moved.shape, np.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=moved)
        return out

    return kernel


def by_gather(table: Any, index: Any) -> Any:
    tile = filled((3, 4), 0.0, BF16)
    nisa.dma_copy(dst=tile, src=gathered(table, index))
    return tile


def by_skipping_gather(table: Any, index: Any) -> Any:
    tile = filled((3, 4), 0.0, BF16)
    nisa.dma_copy(dst=tile, src=gathered(table, index), oob_mode=SKIP)
    return tile


def by_scatter(table: Any, index: Any) -> Any:
    target = shared(table, BF16)
    nisa.dma_copy(dst=gathered(target, index), src=load(table)[3:6, :])
    return target


def by_scalar(table: Any, index: Any) -> Any:
    tile = nl.ndarray((2, 4), BF16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=table.ap([[4, 2], [1, 4]], scalar_offset=index[0:1, :]))
    return tile


def by_transpose(table: Any, index: Any) -> Any:
    tile = nl.ndarray((4, 6), BF16, buffer=nl.sbuf)
    dma_transpose(dst=tile, src=table)
    return tile


def by_sum(table: Any, index: Any) -> Any:
    tile = filled((3, 4), 0.0, BF16)
    dma_compute(tile, [tile, gathered(table, index)], alu.ADD)
    return tile


MOVES = {
    by_gather: lambda t, r: t[r],
    by_skipping_gather: lambda t, r: t[r],
    by_scatter: lambda t, r: np.stack([t[3], t[1], t[5], t[3], t[4], t[4]]),  # rows 3 to 5 into 0, 5 and 2
    by_scalar: lambda t, r: t[r[0] : r[0] + 2],
    by_transpose: lambda t, r: t.T,
    by_sum: lambda t, r: t[r],
}


@pytest.mark.parametrize("move", MOVES, ids=lambda m: m.__name__)
@pytest.mark.parametrize("precise", [True, False])
def test_dynamic_addresses_work_with_and_without_precise_low_precision(move: Any, precise: bool) -> None:
    data = (1 + np.arange(24, dtype=np.float32).reshape(6, 4) / 1000).astype(np.float32)
    rows = np.array([[0], [5], [2]], np.int32)
    table = data.astype(BF16).astype(np.float32) if precise else data
    assert np.array_equal(simulate(round_trip(move), data, rows, precise=precise), MOVES[move](table, rows[:, 0]))
