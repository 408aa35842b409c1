"""Fills that run late and stores that run early."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.passes.analysis.memory_usage import usage
from nki.passes.scheduling.short_lives import with_short_lives
from tests.passes.allocation.support import TRN2, results, traced

ARRAY = np.arange(128 * 8 * 64, dtype=np.float32).reshape(128, 512)


def stages(a: Any, change: bool = False) -> Any:
    """All tiles are zeroed and loaded, then computed on, then stored; the source may change in between."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray((128, 64), a.dtype, buffer=nl.sbuf, name=f"tile{n}") for n in range(8)]
    for n, tile in enumerate(tiles):
        nisa.memset(dst=tile, value=0.0)
        nisa.dma_copy(dst=tile[:, 1:], src=a[:, n * 64 + 1 : n * 64 + 64])
    if change:
        nisa.dma_copy(dst=a[:, 0:64], src=tiles[7])
    for tile in tiles:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    for n, tile in enumerate(tiles):
        nisa.dma_copy(dst=out[:, n * 64 : n * 64 + 64], src=tile)
    return out


def test_one_tile_lives_at_a_time() -> None:
    before = traced(stages, ARRAY)
    after = with_short_lives(before, TRN2)
    assert after is not None
    assert [usage(each, TRN2)[0].bound for each in (before, after)] == [8 * 256, 256]
    assert results(after, ARRAY) == results(before, ARRAY)


def test_a_load_stays_before_what_changes_its_source() -> None:
    before = traced(stages, ARRAY, True)
    after = with_short_lives(before, TRN2)
    assert after is not None
    assert results(after, ARRAY) == results(before, ARRAY)
    assert usage(after, TRN2)[0].bound == 2 * 256  # the tile that is stored to the source, and the one that it was in


def test_an_order_in_which_nothing_moves_is_none() -> None:
    def copied(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        for n in range(2):
            tile = nl.ndarray((128, 256), a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a[:, n * 256 : n * 256 + 256])
            nisa.dma_copy(dst=out[:, n * 256 : n * 256 + 256], src=tile)
        return out

    assert with_short_lives(traced(copied, ARRAY), TRN2) is None
