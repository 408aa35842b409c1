"""Where the result of an MLP goes: to HBM block by block, or to one tile that stays in SBUF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.streaming import psum, sbuf, size, store


@dataclass(frozen=True)
class Streamed:
    """Blocks that are stored as they come.

    Attributes:
        out: ``(tokens, features)`` in HBM.
        first: token that the blocks are counted from.
    """

    out: Any
    first: int

    def place(self, tokens: slice, columns: slice) -> Any:
        """A new tile."""
        return sbuf((size(tokens), size(columns)), self.out.dtype)

    def done(self, tokens: slice, columns: slice, tile: Any) -> None:
        """Store it."""
        store(self.out[self.first + tokens.start : self.first + tokens.stop, columns], tile)


class Kept:
    """A tile of up to 128 tokens with all columns of this core.

    Args:
        tokens: how many.
        columns: of the result.
        dtype: of the tile.
        by_tiles: whether the down projection has its columns as (features / 128, 128) instead of the other way round.
    """

    def __init__(self, tokens: int, columns: slice, dtype: Any, by_tiles: bool) -> None:
        self.columns = columns
        self.tile = sbuf((tokens, size(columns)), dtype)
        self._tiles = size(columns) // nl.tile_size.pmax
        self._by_tiles = by_tiles

    def place(self, tokens: slice, columns: slice) -> Any:
        """Where a block goes, with its columns in the order of the result."""
        start, stop = columns.start - self.columns.start, columns.stop - self.columns.start
        if not self._by_tiles:
            return self.tile[tokens, start:stop]
        pmax = nl.tile_size.pmax
        view = self.tile[tokens, :].reshape_dim(1, (pmax, self._tiles)).permute((0, 2, 1))
        return view[:, start // pmax : stop // pmax, :]

    def done(self, tokens: slice, columns: slice, tile: Any) -> None:
        """Nothing: it stays."""

    def turned(self) -> Any:
        """``(128, features / 128, tokens)``: feature ``p * (features / 128) + tile`` on partition p."""
        pmax, tokens = nl.tile_size.pmax, self.tile.shape[0]
        target = sbuf((pmax, self._tiles, tokens), self.tile.dtype)
        for number in range(self._tiles):
            moved = psum((pmax, tokens), self.tile.dtype)
            source = self.tile[:, number : (pmax - 1) * self._tiles + number + 1 : self._tiles]
            nisa.nc_transpose(dst=moved, data=source, engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=target[:, number, :], src=moved)
        return target
