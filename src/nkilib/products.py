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

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.stacks import (
    PIECES,
    STACK_BYTES,
    TRANSFER_BYTES,
    Slab,
    Stack,
    columns_in,
    empty,
    row_blocks,
    row_groups,
    stacked,
    turned,
)
from nkilib.streaming import copy, copy_selected, filled, load, psum, sbuf, share, size, spans

__all__ = [
    "Slab",
    "Stack",
    "columns_in",
    "empty",
    "own",
    "products",
    "products_spread",
    "products_turned",
    "row_blocks",
    "row_groups",
    "stacked",
    "turned",
]

_BANKS = 4
"""Banks of PSUM that the sums of one strip take, half of all."""

_DEEP = 4
"""Pieces of a stack from which on the weights of a whole strip are long in coming."""


def products(
    stack: Stack | Iterator[Stack],
    *weights: Any,
    columns: slice | None = None,
    biases: Sequence[Any] = (),
    unit: int = 1,
    together: int = 1,
    between: Callable[[], None] | None = None,
) -> Iterator[tuple[Any, ...]]:
    """``stack.T @ weights + biases`` for one or several weights of the same shape, strip by strip.

    Args:
        stack: activations ``(depth, rows)``; or an iterator of stacks whose columns follow each other, each asked for
            when its first product is due, so that products begin before all activations are there.
        weights: ``(depth, n)`` in HBM.
        columns: of the weights that are wanted, by default all.
        biases: none, or for each of the weights ``(1, n)`` in HBM or None; the Tensor engine adds it, as a product with
            ones.
        unit: of columns that are not divided among strips, at most 512.
        together: tiles of 128 rows that a piece of the weights meets as soon as it is there, up to 4. With one, strips
            are wide, and stay in SBUF while several tiles of rows use them; with more they are narrow, and nothing of
            them stays: for deep stacks, of as many tiles.
        between: called after the products of each group of tiles, to do other work of the Tensor engine there.

    Yields:
        ``rows, columns, *sums``: up to 128 rows of the result, up to 2048 of its columns, and for each of the weights
        the sums ``(rows, columns)`` in PSUM, float32. All rows of a strip come before the next strip.
    """
    parts = _Parts(stack)
    given = tuple(biases) or (None,) * len(weights)
    for across in _strips(parts, weights, columns, unit, together):
        strips = [_Strip(parts.first, weight[:, across]) for weight in weights]
        begins = [None if bias is None else _Bias(bias[:, across]) for bias in given]
        for start, part in parts:
            for group in spans(columns_in(part), nl.tile_size.pmax * together):
                sums = [_sums(strip, part, group, begin) for strip, begin in zip(strips, begins, strict=True)]
                for i, down in enumerate(spans(size(group), nl.tile_size.pmax)):
                    first = start + group.start + down.start
                    yield (slice(first, first + size(down)), across, *(each[i] for each in sums))
                if between is not None:
                    between()


def _sums(strip: _Strip, stack: Stack, rows: slice, bias: _Bias | None) -> list[Any]:
    """Sums of tiles of rows, which go through the weights together."""
    columns, tiles = int(strip.weights.shape[1]), spans(size(rows), nl.tile_size.pmax)
    sums = [psum((size(tile), columns)) for tile in tiles]
    if bias is not None:
        for into in sums:
            bias.begin(into)
    for begun, left, right in strip.factors(stack, rows):
        for tile, into in zip(tiles, sums, strict=True):
            for part in spans(columns, nl.tile_size.psum_bank_fmax):
                _multiply(into[:, part], left[..., tile], right[..., part], begun or bias is not None)
    return sums


class _Parts:
    """Stacks whose columns follow each other, each asked for when it is needed first, and kept."""

    def __init__(self, stacks: Stack | Iterator[Stack]) -> None:
        self._here: list[Stack] = []
        self._coming = iter([stacks]) if isinstance(stacks, list) else stacks
        self.first = next(self._coming)
        self._here.append(self.first)
        self.several = columns_in(self.first) > nl.tile_size.pmax or self._another()

    def _another(self) -> bool:
        """Whether there is a second one; if the first ends within a tile there is none, and nobody asks for it."""
        more = None if columns_in(self.first) % nl.tile_size.pmax else next(self._coming, None)
        self._here += [] if more is None else [more]
        return more is not None

    def __iter__(self) -> Iterator[tuple[int, Stack]]:
        """Each with its first column's place."""
        start = 0
        for stack in self._here:
            yield start, stack
            start += columns_in(stack)
        for stack in self._coming:
            self._here.append(stack)
            yield start, stack
            start += columns_in(stack)


class _Bias:
    """A row that sums begin with."""

    def __init__(self, row: Any) -> None:
        self._row = load(row)
        self._ones = filled((1, nl.tile_size.pmax), row.dtype, 1.0)

    def begin(self, into: Any) -> None:
        for part in spans(into.shape[1], nl.tile_size.psum_bank_fmax):
            _multiply(into[:, part], self._ones[:, 0 : into.shape[0]], self._row[:, part], False)


def products_turned(
    stack: Stack | Iterator[Stack], *weights: Any, columns: slice | None = None
) -> Iterator[tuple[Any, ...]]:
    """``weights.T @ stack``: as `products`, with the columns of the weights on partitions.

    What follows from it element by element is itself part of a stack, so that a next product needs no transposes.

    Yields:
        ``columns, rows, *sums``: columns of the weights, either whole tiles of 128 or a smaller tile at their end; up
        to 512 rows; and for each of the weights the sums ``(height <= 128, tiles, rows)`` in PSUM, float32, where
        partition p of tile t is the column t * height + p of those.
    """
    parts = _Parts(stack)
    bank = nl.tile_size.psum_bank_fmax
    slot = next(step for step in (128, 256, bank) if step >= min(columns_in(parts.first), bank))
    most = _BANKS * bank // slot // len(weights)
    for across in _strips(parts, weights, columns, min(most * nl.tile_size.pmax, _BANKS * bank)):
        strips = [_Strip(parts.first, weight[:, across]) for weight in weights]
        for start, part in parts:
            for down in spans(columns_in(part), slot):
                for tiles in _tile_groups(size(across), most):
                    wanted = slice(across.start + tiles.start, across.start + tiles.stop)
                    sums = (_sums_turned(strip, part, tiles, down, slot) for strip in strips)
                    yield (wanted, slice(start + down.start, start + down.stop), *sums)


def _sums_turned(strip: _Strip, stack: Stack, columns: slice, rows: slice, slot: int) -> Any:
    """Sums of tiles of columns; a tile takes `slot` elements of PSUM, so that none crosses a bank."""
    height = min(nl.tile_size.pmax, size(columns))
    into = psum((height, size(columns) // height, slot))[:, :, 0 : size(rows)]
    for begun, right, left in strip.factors(stack, rows):
        for t, part in enumerate(spans(size(columns), height)):
            here = slice(columns.start + part.start, columns.start + part.stop)
            _multiply(into[:, t], left[..., here], right, begun)
    return into


def products_spread(stack: Stack, weight: Any, columns: slice) -> Iterator[tuple[slice, slice, Any]]:
    """``weight[:, columns].T @ stack``, with neighbouring columns on one partition.

    Args:
        columns: a multiple of 128, n * 128. They are loaded at full width.

    Yields:
        ``tiles, rows, sums``: of the n tiles, rows, and the sums ``(128, tiles, rows)`` in PSUM, float32, where
        partition p of tile t is column p * n + t.
    """
    count, bank = size(columns) // nl.tile_size.pmax, nl.tile_size.psum_bank_fmax
    strip = _Strip(stack, weight[:, columns])
    slot = 1 << (min(columns_in(stack), bank) - 1).bit_length()
    for down in spans(columns_in(stack), slot):
        for tiles in spans(count, 2 * _BANKS * bank // slot):
            into = psum((nl.tile_size.pmax, size(tiles), slot))[:, :, 0 : size(down)]
            for begun, right, left in strip.factors(stack, down):
                for t in range(size(tiles)):
                    _multiply(into[:, t], left[..., tiles.start + t :: count], right, begun)
            yield tiles, down, into


def _tile_groups(columns: int, most: int) -> list[slice]:
    """Columns of a strip in groups of up to `most` whole tiles of 128, and a smaller tile alone."""
    pmax = nl.tile_size.pmax
    whole = columns - columns % pmax
    rest = [slice(whole, columns)] if whole < columns else []
    return spans(whole, most * pmax) + rest


def _strips(parts: _Parts, weights: Sequence[Any], columns: slice | None, unit: int, together: int = 1) -> list[slice]:
    """Strips of the weights, as wide as half of PSUM, and as SBUF has room for if several tiles of rows use them.

    Then the first one is narrow where weights are deep, so that products begin while the second is being loaded.
    """
    wanted = columns or slice(0, weights[0].shape[1])
    bank = nl.tile_size.psum_bank_fmax
    depth = sum(parts.first[number].tile.shape[1] for number in range(len(parts.first)))  # none is asked for yet
    most = _BANKS * bank // len(weights)
    if together > 1:
        most = bank
    elif parts.several:
        room = STACK_BYTES // (depth * weights[0].dtype.itemsize * len(weights))
        most = max(bank, min(most, room // bank * bank))
    most = max(unit, most // unit * unit)
    narrow = parts.several and depth >= _DEEP and together == 1
    begin = max(unit, bank // unit * unit) if narrow else most
    cuts = [wanted.start, *range(wanted.start + begin, wanted.stop, most), wanted.stop]
    return [slice(a, b) for a, b in pairwise(cuts) if a < b]


class _Strip:
    """A strip of weights, loaded piece by piece as it is asked for first, and kept for who asks again."""

    def __init__(self, stack: Stack, weights: Any) -> None:
        self.weights = weights
        self._loaded: dict[tuple[int, ...], Any] = {}
        itemsize = weights.dtype.itemsize
        both = stack[0].tile.dtype.itemsize == itemsize == 1
        self._at_once = 2 if both and nisa.get_nc_version() >= nisa.nc_version.gen3 else 1
        self._step = max(self._at_once, min(PIECES, TRANSFER_BYTES // (weights.shape[1] * itemsize)))

    def factors(self, stack: Stack, columns: slice) -> Iterator[tuple[bool, Any, Any]]:
        """Pieces of some columns of a stack with those of the weights: whether others came before, and both.

        They are ``(height, columns)``, or with 8 bits in both of them two pieces at once, ``(height, 2, columns)``.
        """
        begun = False
        for slab in stack:
            for group in spans(slab.tile.shape[1], self._step):
                right = self._piece(slab, group)
                for part in spans(size(group), self._at_once):
                    here = slice(group.start + part.start, group.start + part.stop)
                    yield begun, _one(slab.tile[:, here, columns]), _one(right[:, part])
                    begun = True

    def _piece(self, slab: Slab, group: slice) -> Any:
        key = slab.key(group)
        if key not in self._loaded:
            tile = sbuf((slab.tile.shape[0], size(group), self.weights.shape[1]), self.weights.dtype)
            source = slab.rows_of(self.weights, group)
            (copy_selected if source.is_indirect() else copy)(tile, source)
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
