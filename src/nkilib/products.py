"""Products of activations, which stay in SBUF, with weights that stream from HBM: the core of every projection.

A **stack** is a matrix ``(rows, columns)`` in SBUF whose rows are contracted, in slabs of up to eight pieces of 128
rows. Activations become a stack once (`turned`, `stacked`). `products` then gives the sums ``stack.T @ weights`` in
PSUM, strip by strip of the weights, for the kernel to finish as it likes: scale, add, activate, store.

The Tensor engine holds 128 x 128 of the stack while up to 512 columns of weights move through it, and a strip of up to
2048 columns is summed in four banks of PSUM while the four others are emptied. Weights are loaded once for each stack,
4 KiB of a partition at a time: with few rows that stream is what bounds, with 256 rows or more the Tensor engine.
Pairs of 8-bit pieces are multiplied at double rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.streaming import ceil_div, psum, sbuf, share, size, spans

_PIECES = 8
"""Pieces of a slab: transposes of 128 x 128 elements of 2 bytes that fill one bank of PSUM."""

_BANKS = 4
"""Banks of PSUM that the sums of one strip take, half of all."""

_TRANSFER_BYTES = 4096
"""Of a partition, from which on transfers reach the full rate of DMA."""

_STACK_BYTES = 64 * 1024
"""Of a partition, for a stack or a strip of weights that several row tiles use: a third of SBUF, so that two fit."""

Finish = Callable[[Any, Any], None]
"""``finish(into, block)`` brings a block from PSUM to SBUF."""


@dataclass(frozen=True)
class Slab:
    """Pieces of a stack that lie in one tile.

    Attributes:
        tile: ``(height <= 128, pieces, columns)`` in SBUF.
        start: the matrix's row that partition 0 of piece 0 holds.
        stride: rows from one partition to the next. With 1, pieces follow each other in the matrix; otherwise piece j
            begins j rows later.
    """

    tile: Any
    start: int
    stride: int = 1

    def rows_of(self, matrix: Any, pieces: slice) -> Any:
        """The same rows of another matrix of as many rows: a view ``(height, pieces, columns)``."""
        height, first = self.tile.shape[0], self.start
        if self.stride > 1:
            parted = matrix[0 : height * self.stride].reshape_dim(0, (height, self.stride))
            return parted[:, first + pieces.start : first + pieces.stop]
        rows = matrix[first + pieces.start * height : first + pieces.stop * height]
        return rows.reshape_dim(0, (size(pieces), height)).permute((1, 0, 2))


Stack = list[Slab]


def columns_in(stack: Stack) -> int:
    """Columns of a stack."""
    return int(stack[0].tile.shape[2])


# ------------------------------------------------------------------------------------------------- stacks


def row_blocks(rows: int, depth: int, itemsize: int, *, shared: bool = False) -> list[slice]:
    """Blocks of rows, each to become one stack: as few as fit, of multiples of 128, of nearly equal size.

    Args:
        rows: of the activations.
        depth: elements of a row, which are contracted.
        itemsize: bytes of an element.
        shared: among the cores of the launch, by tiles of 128.
    """
    pmax = nl.tile_size.pmax
    tiles = spans(rows, pmax, shared=shared)
    most = max(2, min(2 * _PIECES, _STACK_BYTES // (ceil_div(depth, pmax) * pmax * itemsize)))
    count = ceil_div(len(tiles), most)
    cuts = [len(tiles) * i // count for i in range(count + 1)]
    return [slice(tiles[cuts[i]].start, tiles[cuts[i + 1] - 1].stop) for i in range(count)]


def empty(depth: int, columns: int, dtype: Any) -> Stack:
    """A stack ``(depth, columns)`` with unknown contents; piece j has every n-th row from j on, n pieces being whole.

    So the pieces of a partition follow each other in a matrix of HBM, and long runs of it are read at once.
    """
    pmax = nl.tile_size.pmax
    whole = depth // pmax
    stack = [
        Slab(sbuf((pmax, size(group), columns), dtype), group.start, whole if whole > 1 else 1)
        for group in spans(whole, _PIECES)
    ]
    if depth % pmax:
        stack.append(Slab(sbuf((depth % pmax, 1, columns), dtype), whole * pmax))
    return stack


def turned(tiles: Iterable[Any], rows: int, depth: int, dtype: Any, finish: Finish | None = None) -> Stack:
    """The stack ``(depth, rows)`` of activations that lie in rows, transposed by the Tensor engine.

    Args:
        tiles: ``(128, depth)`` in SBUF, the last one may have fewer rows; each is asked for when it is needed.
        rows: of all tiles.
        dtype: of the stack; tiles may have another one if `finish` converts.
        finish: brings transposed pieces ``(128, pieces, rows)`` from PSUM into the stack; by default a copy.
    """
    stack = empty(depth, rows, dtype)
    for tile, place in zip(tiles, spans(rows, nl.tile_size.pmax), strict=True):
        for slab in stack:
            _turn(tile, slab, place, finish or _copy)
    return stack


def _turn(tile: Any, slab: Slab, place: slice, finish: Finish) -> None:
    """One tile of rows into its columns of a slab."""
    height, pieces, _ = slab.tile.shape
    for group in spans(pieces, _PIECES * 2 // max(2, tile.dtype.itemsize)):
        moved = _for_transposes(height, size(group), size(place), tile.dtype)
        for j in range(size(group)):
            first = slab.start + group.start + j
            last = first + (height - 1) * slab.stride + 1
            nisa.nc_transpose(dst=moved[:, j], data=tile[:, first : last : slab.stride], engine=nisa.engine.tensor)
        finish(slab.tile[:, group, place], moved)


def _for_transposes(height: int, pieces: int, rows: int, dtype: Any) -> Any:
    """A tile of PSUM that transposes go to; elements of one byte arrive in slots of two since NeuronCore-v3."""
    if dtype.itemsize == 1 and nisa.get_nc_version() >= nisa.nc_version.gen3:
        return psum((height, pieces, rows, 2), dtype)[:, :, :, 0]
    return psum((height, pieces, rows), dtype)


def _copy(into: Any, block: Any) -> None:
    nisa.tensor_copy(dst=into, src=block)


def stacked(source: Any, height: int = 128, dtype: Any = None) -> Stack:
    """A matrix ``(rows, columns)`` of HBM as a stack, its rows in order.

    Args:
        height: rows of a piece.
        dtype: of the stack, by default the matrix's.
    """
    rows, columns = source.shape
    step = height * max(1, _TRANSFER_BYTES // (columns * source.dtype.itemsize))
    stack = []
    for part in spans(rows - rows % height, step) + spans(rows, height)[rows // height :]:
        lower = min(height, size(part))
        slab = Slab(sbuf((lower, size(part) // lower, columns), dtype or source.dtype), part.start)
        nisa.dma_copy(dst=slab.tile, src=slab.rows_of(source, slice(0, slab.tile.shape[1])))
        stack.append(slab)
    return stack


# ----------------------------------------------------------------------------------------------- products


def products(stack: Stack, *weights: Any, columns: slice | None = None) -> Iterator[tuple[Any, ...]]:
    """``stack.T @ weights`` for one or several weights of the same shape, strip by strip.

    Args:
        stack: activations ``(depth, rows)``.
        weights: ``(depth, n)`` in HBM.
        columns: of the weights that are wanted, by default all.

    Yields:
        ``rows, columns, *sums``: up to 128 rows of the result, up to 2048 of its columns, and for each of the weights
        the sums ``(rows, columns)`` in PSUM, float32. All rows of a strip come before the next strip.
    """
    for across in _strips(stack, weights, columns, nl.tile_size.pmax):
        strips = [_Strip(stack, weight[:, across]) for weight in weights]
        for down in spans(columns_in(stack), nl.tile_size.pmax):
            yield (down, across, *(_sums(strip, down) for strip in strips))


def _sums(strip: _Strip, rows: slice) -> Any:
    columns = int(strip.weights.shape[1])
    into = psum((size(rows), columns))
    for begun, left, right in strip.factors(rows):
        for part in spans(columns, nl.tile_size.psum_bank_fmax):
            _multiply(into[:, part], left, right[..., part], begun)
    return into


def products_turned(stack: Stack, *weights: Any, columns: slice | None = None) -> Iterator[tuple[Any, ...]]:
    """``weights.T @ stack``: as `products`, with the columns of the weights on partitions.

    What follows from it element by element is itself part of a stack, so that a next product needs no transposes.

    Yields:
        ``columns, rows, *sums``: columns of the weights, either whole tiles of 128 or a smaller tile at their end; up
        to 512 rows; and for each of the weights the sums ``(height <= 128, tiles, rows)`` in PSUM, float32, where
        partition p of tile t is the column t * height + p of those.
    """
    pmax, bank = nl.tile_size.pmax, nl.tile_size.psum_bank_fmax
    slot = next(step for step in (pmax, 2 * pmax, bank) if step >= min(columns_in(stack), bank))
    most = _BANKS * bank // slot // len(weights)
    for across in _strips(stack, weights, columns, min(most * pmax, _BANKS * bank)):
        strips = [_Strip(stack, weight[:, across]) for weight in weights]
        for down in spans(columns_in(stack), bank):
            for tiles in _tile_groups(size(across), most):
                wanted = slice(across.start + tiles.start, across.start + tiles.stop)
                yield (wanted, down, *(_sums_turned(strip, tiles, down, slot) for strip in strips))


def _sums_turned(strip: _Strip, columns: slice, rows: slice, slot: int) -> Any:
    """Sums of tiles of columns; a tile takes `slot` elements of PSUM, so that none crosses a bank."""
    height = min(nl.tile_size.pmax, size(columns))
    into = psum((height, size(columns) // height, slot))[:, :, 0 : size(rows)]
    for begun, right, left in strip.factors(rows):
        for t, part in enumerate(spans(size(columns), height)):
            here = slice(columns.start + part.start, columns.start + part.stop)
            _multiply(into[:, t], left[..., here], right, begun)
    return into


def _tile_groups(columns: int, most: int) -> list[slice]:
    """Columns of a strip in groups of up to `most` whole tiles of 128, and a smaller tile alone."""
    pmax = nl.tile_size.pmax
    whole = columns - columns % pmax
    rest = [slice(whole, columns)] if whole < columns else []
    return spans(whole, most * pmax) + rest


def _strips(stack: Stack, weights: Sequence[Any], columns: slice | None, unit: int) -> list[slice]:
    """Strips of the weights, as wide as half of PSUM, and as SBUF has room for if several tiles of rows use them."""
    wanted = columns or slice(0, weights[0].shape[1])
    bank = nl.tile_size.psum_bank_fmax
    most = _BANKS * bank // len(weights)
    if columns_in(stack) > nl.tile_size.pmax:
        depth = sum(slab.tile.shape[1] for slab in stack)
        room = _STACK_BYTES // (depth * weights[0].dtype.itemsize * len(weights))
        most = max(bank, min(most, room // bank * bank))
    most = max(unit, most // unit * unit)
    return [slice(wanted.start + part.start, wanted.start + part.stop) for part in spans(size(wanted), most)]


class _Strip:
    """A strip of weights, loaded piece by piece as it is asked for first, and kept for who asks again."""

    def __init__(self, stack: Stack, weights: Any) -> None:
        self.weights = weights
        self._stack = stack
        self._loaded: dict[tuple[int, int], Any] = {}
        itemsize = weights.dtype.itemsize
        both = stack[0].tile.dtype.itemsize == itemsize == 1
        self._at_once = 2 if both and nisa.get_nc_version() >= nisa.nc_version.gen3 else 1
        self._step = max(self._at_once, min(_PIECES, _TRANSFER_BYTES // (weights.shape[1] * itemsize)))

    def factors(self, columns: slice) -> Iterator[tuple[bool, Any, Any]]:
        """Pieces of some columns of the stack with those of the weights: whether others came before, and both.

        They are ``(height, columns)``, or with 8 bits in both of them two pieces at once, ``(height, 2, columns)``.
        """
        begun = False
        for s, slab in enumerate(self._stack):
            for group in spans(slab.tile.shape[1], self._step):
                right = self._piece(s, group)
                for part in spans(size(group), self._at_once):
                    here = slice(group.start + part.start, group.start + part.stop)
                    yield begun, _one(slab.tile[:, here, columns]), _one(right[:, part])
                    begun = True

    def _piece(self, s: int, group: slice) -> Any:
        key = (s, group.start)
        if key not in self._loaded:
            slab = self._stack[s]
            tile = sbuf((slab.tile.shape[0], size(group), self.weights.shape[1]), self.weights.dtype)
            nisa.dma_copy(dst=tile, src=slab.rows_of(self.weights, group))
            self._loaded[key] = tile
        return self._loaded[key]


def _one(pieces: Any) -> Any:
    """A single piece without the dimension of pieces."""
    return pieces[:, 0] if pieces.shape[1] == 1 else pieces


def _multiply(into: Any, stationary: Any, moving: Any, accumulate: bool) -> None:
    """One product; operands with three dimensions hold two rows of each column."""
    pair = len(stationary.shape) > 2
    mode = nisa.matmul_perf_mode.double_row if pair else nisa.matmul_perf_mode.none
    nisa.nc_matmul(dst=into, stationary=stationary, moving=moving, accumulate=accumulate, perf_mode=mode)


def own(total: int, unit: int = 1) -> slice:
    """The part of a dimension that this core of the launch handles: whole units that follow each other."""
    mine = share(spans(total, unit))
    return slice(mine[0].start, mine[-1].stop) if mine else slice(0, 0)
