"""Keys and values of a cache, loaded for the products of decoding: rows for each sequence, or blocks in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.attention.attention_tkg_utils import Part
from nkilib.streaming import load, psum, sbuf, size, spans, transpose

_TRANSPOSED_BYTES = (2, 4)
"""Sizes of elements that DMA transposes."""
_ONCE_KEYS = 1024
"""Keys of several sequences that one transfer brings: more would be there too late to begin with."""
_GATHERED_BYTES = 2
"""Size of elements that DMA transposes while it gathers rows."""


@dataclass
class Rows:
    """A cache with one row of keys for each sequence.

    Attributes:
        keys: ``(sequences, 1, keys, d)`` if `by_key`, else ``(sequences, 1, d, keys)``.
        values: ``(sequences, 1, keys, d)``.
        by_key: see `keys`.
    """

    keys: Any
    values: Any
    by_key: bool

    def load_keys(self, part: Part, sequences: slice) -> Any:
        """A function of a sequence and a tile that gives its keys ``(d, rows)``."""
        here, head, count = slice(part.start, part.start + part.keys), self.values.shape[3], size(sequences)
        if self.by_key and self.keys.dtype.itemsize not in _TRANSPOSED_BYTES:
            return _by_products(_on_partitions(self.keys[sequences, 0, here, :], part))
        tile = sbuf((head, count, part.keys), self.keys.dtype)
        if self.by_key:
            for i in range(count):
                nisa.dma_transpose(dst=tile[:, i, :], src=self.keys[sequences.start + i, 0, here, :])
        else:
            for some in spans(count, max(1, _ONCE_KEYS // part.keys)):
                source = self.keys[sequences.start + some.start : sequences.start + some.stop, 0, :, here]
                nisa.dma_copy(dst=tile[:, some], src=source.permute((1, 0, 2)))
        split = tile.reshape((head, count, part.tiles // part.run, part.rows, part.run))
        return lambda i, t: split[:, i, t // part.run, :, t % part.run]

    def load_values(self, part: Part, sequences: slice) -> Any:
        """``(rows, sequences, tiles, d)`` of a part."""
        return _on_partitions(self.values[sequences, 0, part.start : part.start + part.keys, :], part)


def _on_partitions(source: Any, part: Part) -> Any:
    """``(sequences, keys, d)`` of HBM as ``(rows, sequences, tiles, d)`` in SBUF."""
    count, _, head = source.shape
    tile = sbuf((part.rows, count, part.tiles, head), source.dtype)
    split = source.reshape((count, part.tiles // part.run, part.rows, part.run, head))
    into = tile.reshape((part.rows, count, part.tiles // part.run, part.run, head))
    once = max(1, _ONCE_KEYS // part.keys) if part.tiles == part.run else 1  # an access pattern has four dimensions
    for some in spans(count, once):
        if size(some) == 1:
            nisa.dma_copy(dst=into[:, some.start], src=split[some.start].permute((1, 0, 2, 3)))
        else:
            nisa.dma_copy(dst=into[:, some, 0], src=split[some, 0].permute((1, 0, 2, 3)))
    return tile


def _by_products(tile: Any) -> Any:
    """Keys ``(rows, sequences, tiles, d)`` transposed by the Tensor engine, tile by tile, when they are asked for."""
    return lambda i, t: transpose(tile[:, i, t, :])


@dataclass
class Blocks:
    """A cache of blocks that belong to sequences in any order.

    Attributes:
        keys, values: ``(blocks, keys of a block, d)``.
        index: ``(128, sequences, sets)`` of uint32 in SBUF: which block of `run` keys lies on which partition, for each
            set of 128 blocks of a sequence.
        run: keys of a block as it is read, a divisor of those of the cache's blocks.
    """

    keys: Any
    values: Any
    index: Any
    run: int

    def load_keys(self, part: Part, sequences: slice) -> Any:
        """See `Rows.load_keys`."""
        if self.keys.dtype.itemsize != _GATHERED_BYTES:
            return _by_products(self._gathered(self.keys, part, sequences))
        head, count = self.keys.shape[2], size(sequences)
        rows = self.keys.reshape((-1, 1, self.run, head))
        tile = sbuf((head, count * part.tiles // self.run, self.run, part.rows), self.keys.dtype)
        for place, index in enumerate(self._indices(part, sequences)):
            nisa.dma_transpose(dst=tile[:, place : place + 1], src=rows.vector_select(0, index))
        flat = tile.reshape((head, count, part.tiles, part.rows))
        return lambda i, t: flat[:, i, t, :]

    def load_values(self, part: Part, sequences: slice) -> Any:
        """See `Rows.load_values`."""
        return self._gathered(self.values, part, sequences)

    def _gathered(self, source: Any, part: Part, sequences: slice) -> Any:
        head, count = source.shape[2], size(sequences)
        rows = source.reshape((-1, self.run * head))
        tile = sbuf((part.rows, count * part.tiles // self.run, self.run * head), source.dtype)
        for place, index in enumerate(self._indices(part, sequences)):
            nisa.dma_copy(dst=tile[:, place, :], src=rows.vector_select(0, index))
        return tile.reshape((part.rows, count, part.tiles, head))

    def _indices(self, part: Part, sequences: slice) -> list[Any]:
        """A column of block numbers for each sequence and set of the part."""
        first = part.start // (part.rows * self.run)
        sets = range(first, first + part.tiles // self.run)
        return [self.index[:, i, place : place + 1] for i in range(sequences.start, sequences.stop) for place in sets]


def block_index(table: Any, sequences: slice, ratio: int) -> Any:
    """The index of `Blocks` from a table ``(sequences, blocks)`` of HBM.

    Numbers below 0, of blocks that are not there, become 0: what a mask drops has to be some number.

    Args:
        ratio: blocks as they are read for each block of the cache.
    """
    rows, count, blocks = int(nl.tile_size.pmax), size(sequences), table.shape[1]
    numbers = sbuf((count, blocks), nl.float32)
    signed = load(table[sequences, :]).view(nl.int32)
    nisa.tensor_scalar(dst=numbers, data=signed, op0=nl.maximum, operand0=0.0, op1=nl.multiply, operand1=float(ratio))
    pieces = sbuf((count, ratio), nl.float32)
    nisa.iota(dst=pieces, pattern=[[1, ratio]])
    each = sbuf((count, blocks, ratio), nl.float32)
    nisa.tensor_tensor(
        dst=each,
        data1=numbers.expand_dim(2).broadcast(2, ratio),
        data2=pieces.expand_dim(1).broadcast(1, blocks),
        op=nl.add,
    )
    sets = blocks * ratio // rows
    split = each.reshape((count, sets, rows))
    index = sbuf((rows, count, sets), nl.uint32)
    for place in range(sets):
        moved = psum((rows, count), nl.float32)
        nisa.nc_transpose(dst=moved, data=split[:, place, :], engine=nisa.engine.tensor)
        nisa.tensor_copy(dst=index[:, :, place], src=moved)
    return index
