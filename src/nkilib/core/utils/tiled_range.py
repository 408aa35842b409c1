"""A dimension in tiles, of which the last one may be smaller, and tiles in tiles."""

from __future__ import annotations

import nki.language as nl
from nkilib.core.utils.kernel_assert import kernel_assert


class TiledRangeIterator(nl.NKIObject):
    """One tile of a dimension.

    Attributes:
        size: elements of the tile.
        index: its number, from 0, among the tiles that it was made with.
        start_offset, end_offset: where it begins and ends in the whole dimension, also if it is a tile of a tile.
    """

    size: int
    index: int
    start_offset: int
    end_offset: int

    def __init__(self, tile_size: int, tile_index: int, start_offset: int, end_offset: int) -> None:
        self.size, self.index = tile_size, tile_index
        self.start_offset, self.end_offset = start_offset, end_offset

    def __repr__(self) -> str:
        offsets = f"start_offset={self.start_offset}, end_offset={self.end_offset}"
        return f"TiledRangeIterator(size={self.size}, index={self.index}, {offsets})"


def TiledRange(size: int | TiledRangeIterator, tile_size: int) -> tuple[TiledRangeIterator, ...]:
    """The tiles of a dimension of `size` elements, or of one tile of another range.

    Raises:
        KernelLimit: `tile_size` is less than 1 (``nkilib.argument``).
    """
    kernel_assert(tile_size > 0, f"tile_size is {tile_size}, a tile has at least one element")
    whole = TiledRangeIterator(size, 0, 0, size) if isinstance(size, int) else size
    starts = range(whole.start_offset, whole.end_offset, tile_size)
    ends = [min(start + tile_size, whole.end_offset) for start in starts]
    return tuple(TiledRangeIterator(b - a, i, a, b) for i, (a, b) in enumerate(zip(starts, ends, strict=True)))
