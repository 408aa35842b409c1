"""The DMA micro-benchmarks: streams in one direction, and chains of transfers that wait for each other."""

from __future__ import annotations

from typing import Any

from benchmarks.timing_cases.instructions import hbm, loaded, sbuf, stored

import nki.isa as nisa
import nki.language as nl


def reads(a: Any) -> Any:
    """Independent loads, each kept alive by the sum of its rows, which is stored."""
    times, rows, _ = a.shape
    out = hbm((times, rows, 1))
    tiles = [loaded(a[turn]) for turn in range(times)]
    for turn, tile in enumerate(tiles):
        total = sbuf((rows, 1))
        nisa.activation_reduce(dst=sbuf(tile.shape), op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=total)
        nisa.dma_copy(dst=out[turn], src=total)
    return out


def writes(a: Any, times: int) -> Any:
    """One load, and independent stores of it, all of which wait for a signal."""
    tile, out = sbuf(a.shape), hbm((times, *a.shape))
    nisa.tensor_copy(dst=tile[0:1, 0:1], src=loaded(a)[0:1, 0:1], engine=nisa.engine.vector)
    for turn in range(times):
        nisa.dma_copy(dst=out[turn], src=tile)
    return out


def software_loads(a: Any) -> Any:
    """Independent loads whose descriptors GpSimd writes, each kept alive by one number."""
    times = a.shape[0]
    seen, tiles = sbuf((1, times)), []
    for turn in range(times):
        tile = sbuf(a.shape[1:])
        nisa.dma_copy(dst=tile, src=a[turn], dge_mode=nisa.dge_mode.swdge)
        tiles.append(tile)
    for turn, tile in enumerate(tiles):
        nisa.tensor_copy(dst=seen[:, turn : turn + 1], src=tile[0:1, 0:1], engine=nisa.engine.vector)
    return stored(seen)


def round_trips(a: Any, times: int) -> Any:
    """Stores that are loaded again, and copied before the next store."""
    state, tile = hbm(a.shape), loaded(a)
    for _ in range(times):
        nisa.dma_copy(dst=state, src=tile)
        back, tile = sbuf(a.shape), sbuf(a.shape)
        nisa.dma_copy(dst=back, src=state)
        nisa.tensor_copy(dst=tile, src=back, engine=nisa.engine.vector)
    nisa.dma_copy(dst=state, src=tile)
    return state


def chase(a: Any, times: int) -> Any:
    """Loads of one number each, which is the address of the next."""
    tile = sbuf((1, 1), a.dtype)
    nisa.dma_copy(dst=tile, src=a[0:1, 0:1])
    for _ in range(times):
        after = sbuf((1, 1), a.dtype)
        nisa.dma_copy(dst=after, src=a.ap([[a.shape[1], 1], [1, 1]], scalar_offset=tile, indirect_dim=1))
        tile = after
    out = hbm((1, 1), a.dtype)
    nisa.dma_copy(dst=out, src=tile)
    return out
