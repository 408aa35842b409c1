"""The fused Mamba layer in the versions of its tutorial, as the profiles of the tutorial show that it was compiled.

B and C are broadcast over the partitions by the Tensor engine. Up to 512 columns, which is one bank, the product is
read from PSUM; a longer one is first copied to SBUF. What does not change from state to state is computed once for a
tile if its operands stay (the measured instruction counts and times tell so).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.timing_cases.instructions import hbm, psum, sbuf

import nki.isa as nisa
import nki.language as nl

ROWS, BANK = 128, 512


def _zeros(shape: tuple[int, ...]) -> Any:
    tile = sbuf(shape)
    nisa.memset(dst=tile, value=0.0)
    return tile


def _load(source: Any) -> Any:
    tile = sbuf(source.shape)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def _multiplied(a: Any, b: Any) -> Any:
    result = sbuf(a.shape)
    nisa.tensor_tensor(dst=result, data1=a, data2=b, op=nl.multiply)
    return result


def _spread(row: Any, ones: Any) -> Any:
    """A row on all partitions."""
    columns = row.shape[1]
    if columns <= BANK:
        wide = psum((ROWS, columns))
        nisa.nc_matmul(dst=wide, stationary=ones, moving=row)
        return wide
    result = sbuf((ROWS, columns))
    for start in range(0, columns, BANK):
        wide = psum((ROWS, BANK))
        nisa.nc_matmul(dst=wide, stationary=ones, moving=row[:, start : start + BANK])
        nisa.activation(dst=result[:, start : start + BANK], op=nl.copy, data=wide)
    return result


Wide = Callable[[int], Any]
"""B (0) or C (1) of a state on all partitions."""


def _later(rows: tuple[Any, Any], ones: Any) -> Wide:
    """Rows that are broadcast where they are used."""
    return lambda which: _spread(rows[which], ones)


def _state(delta: Any, decay: Any, change: Any, wide: Wide, first: Any, total: Any) -> Any:
    """One state of one tile, added to the total; returns the scan."""
    factor, scanned = sbuf(delta.shape), sbuf(delta.shape)
    nisa.activation(dst=factor, op=nl.exp, data=delta, scale=decay)
    added = _multiplied(change, wide(0))
    nisa.tensor_tensor_scan(dst=scanned, data0=factor, data1=added, initial=first, op0=nl.multiply, op1=nl.add)
    weighted = _multiplied(scanned, wide(1))
    nisa.tensor_tensor(dst=total, data1=total, data2=weighted, op=nl.add)
    return scanned


def _tile(tensor: Any, number: int) -> Any:
    return tensor[number * ROWS : (number + 1) * ROWS]


def _ones() -> Any:
    ones = sbuf((1, ROWS))
    nisa.memset(dst=ones, value=1.0)
    return ones


def version1(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """States outside, tiles of channels inside: delta and u are loaded for every state again.

    What a state needs of B and C is loaded and broadcast once, and its columns of A are loaded together
    (mamba_v1_profile_4k_chan.png: Tensor has two products for each of the 16 states;
    mamba_v1_profile_4k_chan_sem.png: the burst of short loads). The measured compiler kept some tiles of delta and u
    from state to state, and loaded 242 and 227 of 512; which ones is not published, and here every state loads all.
    """
    channels, columns = delta.shape
    out, ones = hbm((channels, columns)), _ones()
    totals = [_zeros((ROWS, columns)) for _ in range(channels // ROWS)]
    for state in range(a.shape[1]):
        wide = [_spread(_load(row[state : state + 1]), ones) for row in (b, c)]
        decays = [_load(_tile(a, number)[:, state : state + 1]) for number in range(len(totals))]
        for number, total in enumerate(totals):
            tile, inputs = _load(_tile(delta, number)), _load(_tile(u, number))
            _state(tile, decays[number], _multiplied(tile, inputs), wide.__getitem__, 0.0, total)
    for number, total in enumerate(totals):
        nisa.dma_copy(dst=_tile(out, number), src=total)
    return out


def version2(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """Tiles outside, states inside: the inputs of a tile are loaded and multiplied once."""
    channels, columns = delta.shape
    out, ones = hbm((channels, columns)), _ones()
    for number in range(channels // ROWS):
        total = _zeros((ROWS, columns))
        tile = _load(_tile(delta, number))
        change = _multiplied(tile, _load(_tile(u, number)))
        for state in range(a.shape[1]):
            decay = _load(_tile(a, number)[:, state : state + 1])
            rows = _load(b[state : state + 1]), _load(c[state : state + 1])
            _state(tile, decay, change, _later(rows, ones), 0.0, total)
        nisa.dma_copy(dst=_tile(out, number), src=total)
    return out


def version3(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    """As version 2, with pieces of one bank along the row, each of which starts with the end of the scan before."""
    channels, columns = delta.shape
    out, ones = hbm((channels, columns)), _ones()
    for number in range(channels // ROWS):
        total = _zeros((ROWS, columns))
        tile = _load(_tile(delta, number))
        change = _multiplied(tile, _load(_tile(u, number)))
        for state in range(a.shape[1]):
            decay = _load(_tile(a, number)[:, state : state + 1])
            first: Any = 0.0
            for start in range(0, columns, BANK):
                part = slice(start, start + BANK)
                rows = _load(b[state : state + 1, part]), _load(c[state : state + 1, part])
                wide = _later(rows, ones)
                scanned = _state(tile[:, part], decay, change[:, part], wide, first, total[:, part])
                if start + BANK < columns:
                    first = sbuf((ROWS, 1))
                    nisa.tensor_copy(dst=first, src=scanned[:, BANK - 1 : BANK], engine=nisa.engine.vector)
        nisa.dma_copy(dst=_tile(out, number), src=total)
    return out
