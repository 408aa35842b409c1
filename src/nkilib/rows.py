"""Rows of a matrix on partitions, several that follow each other on one, so that every partition moves kilobytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import nki.language as nl
from nkilib.streaming import ceil_div, load, spans

_TILE_BYTES = 4096
"""Of a partition in one transfer: enough for the full rate, little enough to begin computing soon."""


_KEPT_BYTES = 32768
"""Of a row at most, so that several blocks have room while one is computed and another one arrives."""


@dataclass(frozen=True)
class RowBlock:
    """Rows of a matrix that are in SBUF together.

    Attributes:
        start: the first row.
        partitions: that hold rows, at most 128.
        each: rows of a partition.
    """

    start: int
    partitions: int
    each: int

    @property
    def span(self) -> slice:
        """The rows."""
        return slice(self.start, self.start + self.partitions * self.each)

    def of(self, matrix: Any) -> Any:
        """These rows of a matrix in HBM as a view ``(partitions, each, columns)``."""
        return matrix[self.span].reshape((self.partitions, self.each, matrix.shape[1]))


def row_blocks(rows: int, row_bytes: int, *, shared: bool = True, tile_bytes: int = _TILE_BYTES) -> list[RowBlock]:
    """Blocks that cover all rows in order, with as many partitions and as few blocks as rows of this size allow.

    Args:
        rows: of the matrix.
        row_bytes: of one row in HBM.
        shared: among the cores of the launch: each gets rows that follow each other, as evenly as possible.
        tile_bytes: that a partition holds at most, if it holds several rows.
    """
    cores, core = (nl.num_programs(0), nl.program_id(0)) if shared else (1, 0)
    start, stop = rows * core // cores, rows * (core + 1) // cores
    most, blocks = max(1, tile_bytes // row_bytes), []
    while start < stop:
        each = min(most, ceil_div(stop - start, nl.tile_size.pmax))
        blocks.append(RowBlock(start, min(nl.tile_size.pmax, (stop - start) // each), each))
        start = blocks[-1].span.stop
    return blocks


class Pieces:
    """Rows of a block in pieces of columns, for kernels that go over a row several times.

    A row of at most 32 KiB is loaded once and stays; a longer one is loaded each time, but for what the compiler finds
    to be still in SBUF. A row that shares its partition with others is one piece.

    Attributes:
        block: the rows.
        source: the matrix (rows, columns) in HBM.
        parts: the columns of each piece.
        stays: whether the row is loaded once.
    """

    def __init__(self, block: RowBlock, source: Any, tiles: list[Any] | None = None) -> None:
        """Begin to load rows.

        Args:
            tiles: what stands for the rows of the matrix in SBUF; by default they are loaded.
        """
        self.block, self.source = block, source
        self.parts = column_pieces(source)
        self.stays = tiles is not None or source.shape[1] * source.dtype.itemsize <= _KEPT_BYTES
        self._tiles = [self._load(part) for part in self.parts] if self.stays and tiles is None else tiles

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        """Columns, and the tile (partitions, rows of each, columns), of all pieces in order."""
        for place, part in enumerate(self.parts):
            yield part, self._load(part) if self._tiles is None else self._tiles[place]

    def _load(self, part: slice) -> Any:
        return load(self.block.of(self.source[:, part]))


def column_pieces(source: Any) -> list[slice]:
    """Pieces of the columns of a matrix that are one transfer each."""
    return spans(source.shape[1], max(1, _TILE_BYTES // source.dtype.itemsize))


def matrix(tensor: Any) -> Any:
    """A tensor of HBM as a matrix: its last dimension, and all others as rows."""
    *outer, columns = tensor.shape
    return tensor.reshape((prod(outer), columns))
