"""Products of a panel in SBUF with weights that come from HBM once, slab by slab.

The weights' rows are contracted, and the panel has a column for each token. `by_columns` leaves columns of the weights
on partitions, so that its result is the panel of the next product, and `by_rows` leaves tokens there. Both fill half of
PSUM while the other half is emptied, and take as many columns of the weights at once as have room there: the fewer the
tokens, the longer are the runs that DMA reads. Of panels of 8 bits two tiles are contracted at once, at double rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.streaming import Panel, ceil_div, psum, sbuf, size, spans

Weights = list[Any]
"""Views ``(tiles, rows <= 128, columns)`` of a matrix in HBM: each tile meets one tile of the panel, in this order."""

_SLAB = 4 * 1024
"""Bytes of a partition in one transfer of weights: the full rate of DMA, and the shortest way to the first product."""

_BANKS = 4
"""Banks of PSUM that a group of sums takes: half of them."""


def in_tiles(matrix: Any) -> Weights:
    """Rows of a matrix in tiles of 128 that follow each other; the last one may be smaller."""
    rows, columns = matrix.shape
    whole = rows - rows % nl.tile_size.pmax
    views = []
    if whole:
        views.append(matrix[0:whole, :].reshape((whole // nl.tile_size.pmax, nl.tile_size.pmax, columns)))
    if whole < rows:
        views.append(matrix[whole:rows, :].reshape((1, rows - whole, columns)))
    return views


def by_partitions(matrix: Any, parts: int) -> Weights:
    """Rows of a matrix in `parts` blocks, in which row ``p * tiles + tile`` is row p of a tile of 128 rows."""
    rows, columns = matrix.shape
    tiles = rows // (parts * nl.tile_size.pmax)
    blocks = matrix.reshape((parts, nl.tile_size.pmax, tiles, columns))
    return [blocks[part].permute((1, 0, 2)) for part in range(parts)]


def paired(dtype: Any) -> bool:
    """Whether two tiles of a panel of this dtype are contracted at once."""
    return bool(dtype.itemsize == 1 and nisa.get_nc_version() >= nisa.nc_version.gen3)


def panel_of(tile: Any, rows: int) -> Panel:
    """Rows of ``(128, tiles, tokens)`` as a panel: tiles ``(rows, tokens)``, or pairs ``(128, 2, tokens)``."""
    whole, rest = divmod(rows, nl.tile_size.pmax)
    panel = _grouped(tile[:, 0:whole, :]) if whole else []
    return [*panel, tile[0:rest, whole, :]] if rest else panel


def _grouped(tile: Any) -> Panel:
    """Tiles of ``(rows, tiles, columns)`` one by one, or two by two if they are `paired`."""
    groups = spans(tile.shape[1], 2 if paired(tile.dtype) else 1)
    return [tile[:, group, :] if size(group) > 1 else tile[:, group.start, :] for group in groups]


def slabs(weights: Weights, columns: slice, pairs: bool = False) -> Iterator[tuple[int, Any]]:
    """Some columns of the weights as a panel has its rows: the number of the tile or pair, and its weights in SBUF."""
    number, step = 0, 2 if pairs else 1
    for view in weights:
        tiles, rows, _ = view.shape
        for part in spans(tiles, max(1, _SLAB // (size(columns) * view.dtype.itemsize) // step) * step):
            slab = sbuf((rows, size(part), size(columns)), view.dtype)
            nisa.dma_copy(dst=slab, src=view[part, :, columns].permute((1, 0, 2)), dge_mode=nisa.dge_mode.none)
            for group in spans(size(part), step):
                yield number, slab[:, group, :] if size(group) > 1 else slab[:, group.start, :]
                number += 1


def _multiply(target: Any, stationary: Any, moving: Any, accumulate: bool) -> None:
    """One product of tiles, or of pairs."""
    pair = len(stationary.shape) > 2
    mode = nisa.matmul_perf_mode.double_row if pair else nisa.matmul_perf_mode.none
    nisa.nc_matmul(dst=target, stationary=stationary, moving=moving, accumulate=accumulate, perf_mode=mode)


def columns_at_once(weights: Weights, tokens: int) -> int:
    """Columns of the weights that `by_columns` takes in one go."""
    most = _BANKS * nl.tile_size.pmax * max(1, nl.tile_size.psum_bank_fmax // tokens)
    return min(most, _SLAB // weights[0].dtype.itemsize)


def by_columns(weights: Weights, panel: Panel, columns: slice, finish: Callable[[int, Any], None]) -> None:
    """``weights[:, columns].T @ panel``: a column of the weights is a row of the result.

    Args:
        columns: at most `columns_at_once`.
        finish: takes the number of a tile of 128 columns, counted from the first of `columns`, and sums in PSUM
            ``(columns, tiles, tokens)`` from that tile on.
    """
    pmax, tokens = nl.tile_size.pmax, panel[0].shape[-1]
    tiles = spans(size(columns), pmax)
    shared = max(1, nl.tile_size.psum_bank_fmax // tokens)
    banks = [psum((pmax, size(group), tokens)) for group in spans(len(tiles), shared)]
    for place, slab in slabs(weights, columns, paired(panel[0].dtype)):
        for number, tile in enumerate(tiles):
            target = banks[number // shared][0 : size(tile), number % shared, :]
            _multiply(target, slab[..., tile], panel[place], place > 0)
    whole = size(columns) // pmax
    for group, bank in zip(spans(len(tiles), shared), banks, strict=True):
        full = min(group.stop, whole) - group.start
        if full > 0:
            finish(group.start, bank[:, 0:full, :])
        if group.stop > whole:
            finish(whole, bank[0 : size(tiles[-1]), max(full, 0) : max(full, 0) + 1, :])


def column_groups(columns: slice, tokens: int) -> list[slice]:
    """Columns of the weights, in groups that `by_rows` takes in one go."""
    wide = max(1, _BANKS // ceil_div(tokens, nl.tile_size.pmax)) * nl.tile_size.psum_bank_fmax
    return [slice(columns.start + part.start, columns.start + part.stop) for part in spans(size(columns), wide)]


def by_rows(
    tiles: Iterable[tuple[int, Any]], panel: Panel, columns: slice, finish: Callable[[slice, slice, Any], None]
) -> None:
    """``panel.T @ weights[:, columns]``: a token is a row of the result.

    Args:
        tiles: of these columns of the weights, as of `slabs`.
        columns: a group of `column_groups`.
        finish: takes tokens, columns counted from the first of the matrix, and their sums in PSUM
            ``(tokens <= 128, columns <= 512)``.
    """
    rows = spans(panel[0].shape[-1], nl.tile_size.pmax)
    blocks = spans(size(columns), nl.tile_size.psum_bank_fmax)
    banks = [[psum((size(down), size(across))) for across in blocks] for down in rows]
    for place, slab in tiles:
        for down, line in zip(rows, banks, strict=True):
            for across, bank in zip(blocks, line, strict=True):
                _multiply(bank, panel[place][..., down], slab[..., across], place > 0)
    for down, line in zip(rows, banks, strict=True):
        for across, bank in zip(blocks, line, strict=True):
            finish(down, slice(columns.start + across.start, columns.start + across.stop), bank)
