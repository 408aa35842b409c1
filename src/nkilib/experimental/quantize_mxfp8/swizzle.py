"""How MX products want their operands: four numbers of K beside each other, and scales in the quadrants of their data.

A matrix (F, K) is cut into tiles of 512 of K, the last one into pieces of 256 and 128. A piece of P * 4 numbers has P
rows: row p holds, for each f, the numbers q * P + p of the piece with q = 0 to 3. Eight rows share a scale, and 32 rows
have four scales, in four rows at the beginning of their quadrant. Four tiles pack their scales into one tensor of 128
rows: those of tile i begin at row 4 * (i % 4) of each quadrant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.streaming import sbuf, size

PACK = 4
"""Numbers of K in each row."""

TILE = 512
"""Numbers of K in a tile."""

_SLOTS = 4
"""Tiles whose scales fit into one tensor."""

X4 = {nl.float8_e4m3fn: nl.float8_e4m3fn_x4, nl.float8_e5m2: nl.float8_e5m2_x4}
"""Packed dtypes."""


@dataclass(frozen=True)
class Piece:
    """Numbers of K that are quantized together.

    Attributes:
        tile: number of the tile.
        first: the first of them.
        rows: that they take, 32, 64 or 128.
        offset: rows of the tile before them.
    """

    tile: int
    first: int
    rows: int
    offset: int

    @property
    def data_rows(self) -> slice:
        """Rows of all data."""
        return slice(self.first // PACK, self.first // PACK + self.rows)

    @property
    def group(self) -> int:
        """Number of the tensor of packed scales."""
        return self.tile // _SLOTS

    @property
    def scale_row(self) -> int:
        """The first row of the piece in a tensor of packed scales."""
        return self.offset + self.tile % _SLOTS * 4

    @property
    def ends_group(self) -> bool:
        """Whether the piece is the last one of a whole tile, and the tile the last one of its group."""
        return self.rows == TILE // PACK and self.tile % _SLOTS == _SLOTS - 1


def pieces(depth: int) -> list[Piece]:
    """All pieces of K, a multiple of 128."""
    found = [Piece(tile, tile * TILE, TILE // PACK, 0) for tile in range(depth // TILE)]
    first, offset = depth - depth % TILE, 0
    for count in (256, 128):
        if depth - first >= count:
            found.append(Piece(depth // TILE, first, count // PACK, offset))
            first, offset = first + count, offset + count // PACK
    return found


def loaded(source: Any, columns: slice, piece: Piece) -> Any:
    """A piece of some rows of (F, K) as (rows, columns * 4) in SBUF, swizzled by DMA on the way."""
    tile = sbuf((piece.rows, size(columns), PACK), source.dtype)
    numbers = source[columns, piece.first : piece.first + PACK * piece.rows]
    nisa.dma_transpose(
        dst=tile.permute((0, 2, 1)), src=numbers.reshape_dim(1, (PACK, piece.rows)), dge_mode=nisa.dge_mode.none
    )
    return tile.reshape((piece.rows, size(columns) * PACK))


def quantized(values: Any, dtype: Any, scales: Any) -> Any:
    """Packed values (rows, columns) of (rows, columns * 4); their scales go into rows of a tile from row 0 on.

    Args:
        dtype: float8_e4m3fn or float8_e5m2.
        scales: (rows - 28 or more, columns) uint8 in SBUF.
    """
    rows, columns = values.shape[0], values.shape[1] // PACK
    packed = sbuf((rows, columns), X4[dtype])
    nisa.quantize_mx(dst=packed, src=values, dst_scale=scales[0 : rows - 28, :])
    return packed


def groups(depth: int) -> int:
    """Tensors of packed scales."""
    return streaming.ceil_div(depth, TILE * _SLOTS)
