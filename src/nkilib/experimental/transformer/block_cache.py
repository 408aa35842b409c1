"""New keys and values into a cache, in place, each at the position that an index says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nkilib.streaming import load, sbuf

_NOWHERE = -(2.0**30)
"""Added to the place of what is not written: no cache reaches below 0."""


@dataclass
class Places:
    """Where new tokens go.

    Attributes:
        index: ``(batch, 1)``, the first new token's position, or ``(batch, new tokens)`` of a paged cache; below 0,
            which as uint32 is the largest number, nothing is written, nor where a cache of rows would end before the
            last new token. In HBM.
        batch, new: sizes.
        keys: that the cache has for each sequence, 0 for a paged cache, whose positions count through all blocks.
    """

    index: Any
    batch: int
    new: int
    keys: int

    def rows(self) -> Any:
        """The row of each token in a cache of rows ``(tokens, d)``: ``(batch * new tokens, 1)`` of int32 in SBUF."""
        each = self.index.shape[1] == self.new
        offsets = np.arange(self.batch)[:, None] * self.keys + (0 if each else np.arange(self.new))
        spread = self.index if each else self.index.broadcast(1, self.new)
        column = np.broadcast_to(offsets, (self.batch, self.new)).reshape(-1, 1)
        base = load(nl.shared_constant(np.ascontiguousarray(column, np.int32)))
        place = self._placed(spread, tuple(column.shape))
        nisa.tensor_tensor(dst=place, data1=place, data2=base, op=nl.add)
        return place

    def columns(self) -> Any:
        """The position of each sequence's first token: ``(1, batch)`` of int32 in SBUF."""
        return self._placed(self.index.reshape((1, self.batch)), (1, self.batch))

    def _placed(self, source: Any, shape: tuple[int, ...]) -> Any:
        """The index, far below 0 where nothing is written; integers are added exactly, which float32 would round."""
        index = place = sbuf(shape, nl.int32)
        nisa.dma_copy(dst=index.view(self.index.dtype), src=source)
        refused = [(nl.less, 0.0)]
        if self.keys:  # behind its last row a cache has those of the next sequence
            refused.append((nl.greater, float(self.keys - self.new)))
        for op, limit in refused:
            nowhere, moved = sbuf(shape, nl.int32), sbuf(shape, nl.int32)
            nisa.tensor_scalar(dst=nowhere, data=index, op0=op, operand0=limit, op1=nl.multiply, operand1=_NOWHERE)
            nisa.tensor_tensor(dst=moved, data1=place, data2=nowhere, op=nl.add)
            place = moved
        return place


def write_rows(cache: Any, tile: Any, rows: Any) -> None:
    """Tokens ``(tokens, d)`` in SBUF to rows of a cache ``(..., d)``."""
    target = cache.reshape((-1, cache.shape[-1]))
    nisa.dma_copy(dst=target.vector_select(0, rows), src=tile, oob_mode=nisa.oob_mode.skip)


def write_columns(cache: Any, tile: Any, columns: Any) -> None:
    """Keys ``(d, batch * new tokens)`` in SBUF to columns of a cache ``(batch, 1, d, keys)``."""
    _, _, head, keys = cache.shape
    batch = columns.shape[1]
    new = tile.shape[1] // batch
    for sequence in range(batch):
        target = cache.ap(
            pattern=[[keys, head], [1, new]],
            offset=sequence * head * keys,
            scalar_offset=columns[0:1, sequence : sequence + 1],
            indirect_dim=3,
        )
        source = tile[:, sequence * new : (sequence + 1) * new]
        nisa.dma_copy(dst=target, src=source, oob_mode=nisa.oob_mode.skip)
