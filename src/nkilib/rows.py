"""Rows of a matrix on partitions, several that follow each other on one, so that every partition moves kilobytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import nki.language as nl
from nkilib.streaming import ceil_div

_TILE_BYTES = 4096
"""Of a partition in one transfer: enough for the full rate, little enough to begin computing soon."""


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


def matrix(tensor: Any) -> Any:
    """A tensor of HBM as a matrix: its last dimension, and all others as rows."""
    *outer, columns = tensor.shape
    return tensor.reshape((prod(outer), columns))
