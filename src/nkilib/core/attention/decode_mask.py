"""Which keys do not count: tiles of 0 and 1 for parts of the keys, from a mask in HBM or from positions.

Every tile has five dimensions, (rows, sequences, heads, new tokens, tiles); one that makes no difference has size 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig, Part
from nkilib.streaming import load, load_repeated, psum, sbuf, size, spans

_SHORT = 64
"""Elements of a row of a mask up to which DMA is slower than loading tile by tile and transposing."""


@dataclass
class Mask:
    """A mask that is given, 0 where a key does not count.

    Attributes:
        tensor: ``(keys, sequences, heads, new tokens)``.
        cfg: sizes.
        run: keys of a block of a paged cache as it is read, whose rows are ordered ``(128 blocks, key of the block,
            block)``; 0 where rows are keys.
    """

    tensor: Any
    cfg: AttnTKGConfig
    run: int

    def drops(self, part: Part, sequences: slice) -> list[Any]:
        """What drops keys of a part."""
        columns = size(sequences) * self.cfg.rows
        source = self.tensor[part.start : part.start + part.keys, sequences].reshape((part.keys, columns))
        if self.run and columns <= _SHORT:
            shape = (part.rows, size(sequences), self.cfg.q_head, self.cfg.s_active, part.tiles)
            return [_turned(source.reshape((part.tiles, part.rows, columns))).reshape(shape)]
        tile = sbuf((part.rows, part.tiles, columns), self.tensor.dtype)
        if self.run:
            split, into = source.reshape((part.tiles, part.rows, columns)).permute((1, 0, 2)), tile
        else:
            runs = part.tiles // part.run
            split = source.reshape((runs, part.rows, part.run, columns)).permute((1, 0, 2, 3))
            into = tile.reshape((part.rows, runs, part.run, columns))
        nisa.dma_copy(dst=into, src=split, dge_mode=nisa.dge_mode.none)  # many descriptors, which nobody generates
        return [self._dropped(tile, sequences)]

    def active(self, sequences: slice) -> list[Any]:
        """What drops new tokens, which are the last keys."""
        first = self.cfg.curr_sprior - self.cfg.s_active
        rows = [self._row(first + place) for place in range(self.cfg.s_active)]
        return [self._dropped(_load_rows(self.tensor, rows, sequences), sequences)]

    def _row(self, key: int) -> int:
        if not self.run:
            return key
        rows = int(nl.tile_size.pmax)
        block, place = divmod(key, self.run)
        return (block // rows * self.run + place) * rows + block % rows

    def _dropped(self, tile: Any, sequences: slice) -> Any:
        return _zeros(tile, (size(sequences), self.cfg.q_head, self.cfg.s_active))


@dataclass
class Positions:
    """Keys before a position count, or those of a window that ends there.

    Attributes:
        active_mask: ``(new tokens, sequences, heads, new tokens)``, 0 where a new token does not count.
        ends: ``(sequences, new tokens)``: keys before it count; without a window that of the first new token for all.
        starts: the first key of each window, or None; behind its end if the cache is a ring.
        cfg: sizes.
    """

    active_mask: Any
    ends: Any
    starts: Any
    cfg: AttnTKGConfig

    def drops(self, part: Part, sequences: slice) -> list[Any]:
        """See `Mask.drops`."""
        keys = positions_of(part)
        ends = self._bounds(self.ends, part.rows, sequences)
        if self.starts is None:
            return [compared(keys, ends[:, :, :, 0:1, :], nl.greater_equal)]
        starts = self._bounds(self.starts, part.rows, sequences)
        after, before = compared(keys, starts, nl.greater_equal), compared(keys, ends, nl.less)
        least = sbuf(
            tuple(ends.shape), nl.float32
        )  # conditions that hold for a key that counts: one is enough in a ring
        nisa.tensor_tensor(dst=least, data1=starts, data2=ends, op=nl.less_equal)
        nisa.tensor_scalar(dst=least, data=least, op0=nl.add, operand0=1.0)
        nisa.tensor_tensor(dst=after, data1=after, data2=before, op=nl.add)
        return [compared(after, least, nl.less)]

    def active(self, sequences: slice) -> list[Any]:
        """See `Mask.active`."""
        tile = _load_rows(self.active_mask, list(range(self.cfg.s_active)), sequences)
        return [_zeros(tile, (size(sequences), self.cfg.q_head, self.cfg.s_active))]

    def _bounds(self, source: Any, rows: int, sequences: slice) -> Any:
        tile = load_repeated(source[sequences, :], rows, nl.float32)
        return tile.reshape((rows, size(sequences), 1, self.cfg.s_active, 1))


def positions_of(part: Part) -> Any:
    """The number of each key of a part."""
    keys = sbuf((part.rows, 1, 1, 1, part.tiles), nl.float32)
    nisa.iota(dst=keys, pattern=part.pattern, offset=part.start, channel_multiplier=part.run)
    return keys


def beyond(part: Part, keys: int) -> list[Any]:
    """What drops keys that new tokens take the place of; nothing where a part has none of them."""
    if part.start + part.keys <= keys:
        return []
    tile = sbuf((part.rows, 1, 1, 1, part.tiles), nl.bfloat16)
    nisa.tensor_scalar(dst=tile, data=positions_of(part), op0=nl.greater_equal, operand0=float(keys))
    return [tile]


def compared(left: Any, right: Any, op: Any) -> Any:
    """1 where the comparison holds, of two tiles whose sizes are equal or 1."""
    shape = tuple(max(a, b) for a, b in zip(left.shape, right.shape, strict=True))
    tile = sbuf(shape, nl.bfloat16)
    nisa.tensor_tensor(dst=tile, data1=spread(left, shape), data2=spread(right, shape), op=op)
    return tile


def spread(tile: Any, shape: tuple[int, ...]) -> Any:
    """A tile repeated along the dimensions where its size is 1 and that of the shape another one."""
    for axis, (have, want) in enumerate(zip(tile.shape, shape, strict=True)):
        tile = tile if have == want else tile.broadcast(axis, want)
    return tile


def piece(tile: Any, tiles: slice) -> Any:
    """Some tiles of what drops keys."""
    return tile if tile.shape[4] == 1 else tile[:, :, :, :, tiles]


def _load_rows(source: Any, rows: list[int], sequences: slice) -> Any:
    """Rows of a mask, one on each partition: ``(rows, 1, columns)``."""
    columns = size(sequences) * source.shape[2] * source.shape[3]
    tile = sbuf((len(rows), 1, columns), source.dtype)
    if rows == list(range(rows[0], rows[0] + len(rows))):
        nisa.dma_copy(dst=tile, src=source[rows[0] : rows[-1] + 1, sequences])
        return tile
    for place, row in enumerate(rows):
        nisa.dma_copy(dst=tile[place : place + 1], src=source[row : row + 1, sequences])
    return tile


def _zeros(tile: Any, sizes: tuple[int, int, int]) -> Any:
    """1 where a tile ``(rows, tiles, columns)`` is 0."""
    rows, tiles, columns = tile.shape
    dropped = sbuf((rows, tiles, columns), nl.bfloat16)
    nisa.tensor_scalar(dst=dropped, data=tile, op0=nl.equal, operand0=0.0)
    return dropped.reshape((rows, tiles, *sizes)).permute((0, 2, 3, 4, 1))


def _turned(source: Any) -> Any:
    """1 where a mask ``(tiles, rows, columns)`` of HBM is 0, as ``(rows, columns, tiles)``."""
    tiles, rows, columns = source.shape
    turned = sbuf((rows, columns, tiles), nl.bfloat16)
    for some in spans(tiles, int(nl.tile_size.pmax)):
        dropped = sbuf((size(some), rows, columns), nl.bfloat16)
        nisa.tensor_scalar(dst=dropped, data=load(source[some]), op0=nl.equal, operand0=0.0)
        for these in spans(columns, max(1, nl.tile_size.psum_bank_fmax_bytes // dropped.dtype.itemsize // size(some))):
            moved = psum((rows, size(these), size(some)), nl.bfloat16)
            for place, column in enumerate(range(these.start, these.stop)):
                nisa.nc_transpose(dst=moved[:, place, :], data=dropped[:, :, column], engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=turned[:, these, some], src=moved)
    return turned
