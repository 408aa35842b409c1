"""Matrices in SBUF whose rows are contracted: activations as the Tensor engine wants them.

A **stack** is a matrix ``(rows, columns)`` in slabs of up to eight pieces of 128 rows. Activations become one with
`turned` where they lie in rows, and with `stacked` where they lie in columns already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.streaming import ceil_div, copy, psum, sbuf, size, spans

PIECES = 8
"""Pieces of a slab: transposes of 128 x 128 elements of 2 bytes that fill one bank of PSUM."""

TRANSFER_BYTES = 4096
"""Of a partition, from which on transfers reach the full rate of DMA."""

STACK_BYTES = 64 * 1024
"""Of a partition, for a stack or a strip of weights that several row tiles use: a third of SBUF, so that two fit."""

_GROUP = 4
"""Tiles of rows whose sums of 512 columns take half of PSUM."""

Finish = Callable[[Any, Any, slice], None]
"""``finish(into, block, pieces)`` brings transposed pieces ``(height, pieces, rows)`` of a stack from PSUM to SBUF."""


@dataclass(frozen=True)
class Slab:
    """Pieces of a stack that lie in one tile.

    Attributes:
        tile: ``(height <= 128, pieces, columns)`` in SBUF.
        start: the matrix's row that partition 0 of piece 0 holds.
        stride: rows from one partition to the next. With 1, pieces follow each other in the matrix; otherwise piece j
            begins j rows later.
        base: with a stride, the row that the rows of all pieces begin at.
    """

    tile: Any
    start: int
    stride: int = 1
    base: int = 0

    def key(self, pieces: slice) -> tuple[int, ...]:
        """Which rows of a matrix `rows_of` gives, and in which form; equal for equal rows alone."""
        height = int(self.tile.shape[0])
        first = self.start + (pieces.start if self.stride > 1 else pieces.start * height)
        return self.base, self.stride, height, first, size(pieces)

    def rows_of(self, matrix: Any, pieces: slice) -> Any:
        """The same rows of another matrix of as many rows: a view ``(height, pieces, columns)``."""
        height, first = self.tile.shape[0], self.start
        if self.stride > 1:
            parted = matrix[self.base : self.base + height * self.stride].reshape_dim(0, (height, self.stride))
            return parted[:, first + pieces.start : first + pieces.stop]
        rows = matrix[first + pieces.start * height : first + pieces.stop * height]
        return rows.reshape_dim(0, (size(pieces), height)).permute((1, 0, 2))


Stack = list[Slab]


def columns_in(stack: Stack) -> int:
    """Columns of a stack."""
    return int(stack[0].tile.shape[2])


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
    most = max(2, STACK_BYTES // (ceil_div(depth, pmax) * pmax * itemsize))
    count = ceil_div(len(tiles), most)
    cuts = [len(tiles) * i // count for i in range(count + 1)]
    return [slice(tiles[cuts[i]].start, tiles[cuts[i + 1] - 1].stop) for i in range(count)]


def row_groups(rows: int, first: int = 2, *, shared: bool = False) -> list[slice]:
    """Groups of up to four tiles of 128 rows, each to become one stack, whose tiles go through weights together.

    None but a lonely group has a single tile, for which weights could not come fast enough.

    Args:
        first: tiles of the first group; a small one is ready soon.
        shared: among the cores of the launch, by tiles of 128.
    """
    tiles = spans(rows, nl.tile_size.pmax, shared=shared)
    count = len(tiles)
    begin = first if count >= _GROUP else count
    rest = ceil_div(count - begin, _GROUP)
    cuts = [0, *(begin + (count - begin) * i // max(1, rest) for i in range(rest + 1))] if count else []
    return [slice(tiles[a].start, tiles[b - 1].stop) for a, b in pairwise(cuts) if a < b]


def empty(depth: int, columns: int, dtype: Any, *, spread: bool = True) -> Stack:
    """A stack ``(depth, columns)`` with unknown contents.

    Args:
        spread: whether piece j has every n-th row from j on, n pieces being whole, so that the pieces of a partition
            follow each other in a matrix of HBM, and long runs of it are read at once; otherwise it has 128 rows that
            follow each other.
    """
    pmax = nl.tile_size.pmax
    whole = depth // pmax
    stack = []
    for group in spans(whole, PIECES):
        tile = sbuf((pmax, size(group), columns), dtype)
        stack.append(Slab(tile, group.start, whole) if spread and whole > 1 else Slab(tile, group.start * pmax))
    if depth % pmax:
        stack.append(Slab(sbuf((depth % pmax, 1, columns), dtype), whole * pmax))
    return stack


Step = tuple[Any, slice, int]
"""A tile ``(rows <= 128, features)``, the rows of all that it has, and the first of its features."""


class Arriving(list[Slab]):
    """A stack whose slabs are filled in their order, each when it is asked for first: as late as a product is due.

    So what fills them stands between the loads of the weights that they meet.

    Args:
        slabs: of the stack.
        steps: each fills one slab.
    """

    def __init__(self, slabs: Stack, steps: Iterator[None]) -> None:
        super().__init__(slabs)
        self._steps, self._filled = steps, 0

    def __iter__(self) -> Iterator[Slab]:
        return (self._ready(number) for number in range(len(self)))

    def _ready(self, number: int) -> Slab:
        while self._filled <= number:
            next(self._steps, None)
            self._filled += 1
        return self[number]


class Coming:
    """A stack that is filled step by step, so that its work can stand between other work.

    Args:
        steps: each fills a part of the stack when it is asked for.
    """

    def __init__(self, stack: Stack, steps: Iterator[None]) -> None:
        self._stack, self._steps = stack, steps

    def advance(self, steps: int) -> None:
        """Some more steps, as far as there are any."""
        for _ in range(steps):
            next(self._steps, None)

    def arriving(self) -> Stack:
        """The stack, whose steps fill one slab each, and which are taken when products with it are due."""
        return Arriving(self._stack, self._steps)

    def finished(self) -> Stack:
        """The stack, after all steps."""
        for _ in self._steps:
            pass
        return self._stack


def turning(stack: Stack, steps: Iterable[Step], finish: Finish | None = None) -> Coming:
    """Activations that lie in rows on their way into a stack ``(depth, rows)``, transposed by the Tensor engine.

    Args:
        stack: not a spread one if tiles have parts of the features, which begin at a multiple of 1024.
        steps: asked for one by one.
        finish: brings transposed pieces into the stack; by default a copy.
    """

    def work() -> Iterator[None]:
        for tile, place, first in steps:
            for slab in stack:
                if slab.stride > 1 or first <= slab.start < first + tile.shape[1]:
                    _turn(tile, slab, place, first, finish or _copy)
            yield

    return Coming(stack, work())


def transposing(stack: Stack, rows: Any) -> Coming:
    """Rows ``(rows, depth)`` of HBM, of 2 bytes, on their way into a stack that is not spread, transposed by DMA."""

    def work() -> Iterator[None]:
        for slab in stack:
            height, pieces, _ = slab.tile.shape
            for piece in range(pieces):
                first = slab.start + piece * height
                source = rows[:, first : first + height]
                nisa.dma_transpose(dst=slab.tile[:, piece], src=source, dge_mode=nisa.dge_mode.none)
            yield

    return Coming(stack, work())


def turned(tiles: Iterable[Any], rows: int, depth: int, dtype: Any, finish: Finish | None = None) -> Stack:
    """The stack ``(depth, rows)`` of activations that lie in rows, at once.

    Args:
        tiles: ``(128, depth)`` in SBUF, the last one may have fewer rows; each is asked for when it is needed.
        rows: of all tiles.
        dtype: of the stack; tiles may have another one if `finish` converts.
        finish: as for `turning`.
    """
    places = spans(rows, nl.tile_size.pmax)
    steps = ((tile, place, 0) for tile, place in zip(tiles, places, strict=True))
    return turning(empty(depth, rows, dtype), steps, finish).finished()


def _turn(tile: Any, slab: Slab, place: slice, offset: int, finish: Finish) -> None:
    """A tile of rows, whose first column is the stack's row `offset`, into its columns of a slab."""
    height, pieces, _ = slab.tile.shape
    step = 1 if slab.stride > 1 else nl.tile_size.pmax  # rows from one piece to the next
    for group in spans(pieces, PIECES * 2 // max(2, tile.dtype.itemsize)):
        moved = _for_transposes(height, size(group), size(place), tile.dtype)
        for j in range(size(group)):
            first = slab.start + (group.start + j) * step - offset
            last = first + (height - 1) * slab.stride + 1
            nisa.nc_transpose(dst=moved[:, j], data=tile[:, first : last : slab.stride], engine=nisa.engine.tensor)
        number = slab.start // step
        finish(slab.tile[:, group, place], moved, slice(number + group.start, number + group.stop))


def _for_transposes(height: int, pieces: int, rows: int, dtype: Any) -> Any:
    """A tile of PSUM that transposes go to; elements of one byte arrive in slots of two since NeuronCore-v3."""
    if dtype.itemsize == 1 and nisa.get_nc_version() >= nisa.nc_version.gen3:
        return psum((height, pieces, rows, 2), dtype)[:, :, :, 0]
    return psum((height, pieces, rows + rows % 2), dtype)[:, :, 0:rows]  # elements of 2 bytes begin at multiples of 4


def _copy(into: Any, block: Any, pieces: slice) -> None:
    nisa.tensor_copy(dst=into, src=block)


def batches(source: Any, block: slice, step: int) -> Iterator[Stack]:
    """Columns of all batches of ``(batch, depth, columns)`` in HBM, side by side, as stacks of up to `step` columns.

    Args:
        block: of the columns of all batches.
        step: columns of a stack; each stack is loaded when it is asked for.
    """
    length, width = source.shape[2], 0
    for part in spans(size(block), step):
        start, stop = block.start + part.start, block.start + part.stop
        pieces = []
        for b in range(start // length, (stop - 1) // length + 1):
            first, last = max(start - b * length, 0), min(stop - b * length, length)
            pieces.append(source[b][:, first:last])
        width = width or min(piece.shape[1] for piece in pieces)
        yield stacked(*pieces, width=width)


def stacked(*sources: Any, height: int = 128, dtype: Any = None, width: int = 0) -> Stack:
    """Matrices ``(rows, columns)`` of HBM side by side as one stack, rows in order; a slab is loaded when it is used.

    Args:
        height: rows of a piece.
        dtype: of the stack, by default the matrices'.
        width: columns of a matrix that slabs are cut for, by default of the narrowest one; stacks that one matrix is
            multiplied with are cut for the same.
    """
    rows, columns = sources[0].shape[0], [source.shape[1] for source in sources]
    kind = dtype or sources[0].dtype
    step = height * max(2, min(PIECES, TRANSFER_BYTES // ((width or min(columns)) * sources[0].dtype.itemsize)))
    slabs = []
    for part in spans(rows - rows % height, step) + spans(rows, height)[rows // height :]:
        lower = min(height, size(part))
        slabs.append(Slab(sbuf((lower, size(part) // lower, sum(columns)), kind), part.start))

    def work() -> Iterator[None]:
        for slab in slabs:
            for i, source in enumerate(sources):
                place = slice(sum(columns[:i]), sum(columns[: i + 1]))
                copy(slab.tile[:, :, place], slab.rows_of(source, slice(0, slab.tile.shape[1])))
            yield

    return Arriving(slabs, work())
