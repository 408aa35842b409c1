"""Where queries, keys and values go: three layouts of one tensor, or caches of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.utils.common_types import QKVOutputLayout
from nkilib.fp8 import column, largest
from nkilib.streaming import copy, load, psum, result, sbuf, size, spans, store

_GROUP = 8
"""Heads that are transposed into one bank of PSUM."""


@dataclass(frozen=True)
class Whole:
    """One tensor for queries, keys and values.

    Attributes:
        layout: of it.
        out: (B, S, I), (N, B, S, d) or (N, B, d, S).
        head: size of a head.
    """

    layout: QKVOutputLayout
    out: Any
    head: int

    @classmethod
    def of(cls, layout: QKVOutputLayout, shape: tuple[int, int, int], head: int, dtype: Any, given: Any) -> Whole:
        """A new tensor for (batch, sequence, columns), or the given one."""
        batch, sequence, columns = shape
        heads = columns // head if head else 0
        shapes = {
            QKVOutputLayout.BSD: shape,
            QKVOutputLayout.NBSd: (heads, batch, sequence, head),
            QKVOutputLayout.NBdS: (heads, batch, head, sequence),
        }
        return cls(layout, result(shapes[layout], dtype) if given is None else given, head)

    def put(self, tile: Any, tokens: slice, columns: slice) -> None:
        """Finished columns of some tokens, counted through all batches."""
        if self.layout is QKVOutputLayout.BSD:
            batch, sequence, width = self.out.shape
            store(self.out.reshape((batch * sequence, width))[tokens, columns], tile)
            return
        heads = slice(columns.start // self.head, columns.stop // self.head)
        by_head = tile.reshape_dim(1, (size(heads), self.head))
        if self.layout is QKVOutputLayout.NBSd:
            count, batch, sequence, head = self.out.shape
            flat = self.out.reshape((count, batch * sequence, head))
            store(flat[heads, tokens].permute((1, 0, 2)), by_head)
            return
        for group in spans(size(heads), _GROUP):
            self._put_turned(by_head[:, group], tokens, heads.start + group.start)

    def _put_turned(self, tile: Any, tokens: slice, first: int) -> None:
        """Heads ``(rows, heads, head size)`` with tokens along the last dimension, batch by batch."""
        rows, heads, head = tile.shape
        moved = psum((head, heads, rows + rows % 2), tile.dtype)[:, :, 0:rows]
        for n in range(heads):
            nisa.nc_transpose(dst=moved[:, n], data=tile[:, n], engine=nisa.engine.tensor)
        turned = sbuf((head, heads, rows), tile.dtype)
        nisa.tensor_copy(dst=turned, src=moved)
        for b, here, place in by_batch(tokens, self.out.shape[3]):
            target = self.out[first : first + heads, b, :, place].permute((1, 0, 2))
            copy(target, turned[:, :, here])

    def made(self) -> Any:
        """What the kernel returns."""
        return self.out


@dataclass(frozen=True)
class Inside:
    """A tile (tokens, I) in SBUF."""

    out: Any

    def put(self, tile: Any, tokens: slice, columns: slice) -> None:
        """Finished columns of some tokens."""
        nisa.tensor_copy(dst=self.out[tokens, columns], src=tile)

    def made(self) -> Any:
        """What the kernel returns."""
        return self.out


@dataclass(frozen=True)
class Cache:
    """A cache of keys or of values.

    Attributes:
        cache: (B, most tokens, columns), or (blocks, tokens of a block, columns).
        slots: (tokens of all batches, 1) in HBM, the place of each in all blocks; or None.
        sequence: tokens of a batch.
        scale: (128, 1) in HBM that numbers are divided by; or None.
        least, most: that they are clipped to.
    """

    cache: Any
    slots: Any
    sequence: int
    scale: Any
    least: float
    most: float

    def put(self, tile: Any, tokens: slice, columns: slice) -> None:
        """Columns of some tokens into the same columns of the cache."""
        tile = rounded(tile, self.cache.dtype) if self.scale is None else self._quantized(tile)
        if self.slots is not None:
            blocks, length, width = self.cache.shape
            places = load(self.slots[tokens])
            rows = self.cache.reshape((blocks * length, width))[:, columns].vector_select(0, places)
            nisa.dma_copy(dst=rows, src=tile)
            return
        for b, here, place in by_batch(tokens, self.sequence):
            copy(self.cache[b, place, columns], tile[here])

    def _quantized(self, tile: Any) -> Any:
        scale, small = column(self.scale), sbuf(tile.shape, self.cache.dtype)
        clipped, factor = sbuf(tile.shape, nl.float32), sbuf(scale.shape, nl.float32)
        nisa.reciprocal(dst=factor, data=scale)
        rows = slice(0, tile.shape[0])
        nisa.tensor_scalar(
            dst=clipped, data=tile, op0=nl.multiply, operand0=factor[rows], op1=nl.minimum, operand1=self.most
        )
        nisa.tensor_scalar(dst=small, data=clipped, op0=nl.maximum, operand0=self.least)
        return small


@dataclass(frozen=True)
class Divided:
    """Queries in a tensor (B, S, columns), keys and values in caches; what is put may have more digits than they.

    Attributes:
        queries: the tensor.
        keys, values: the caches.
        ends: the columns after the last one of queries, of keys and of values.
    """

    queries: Any
    keys: Cache
    values: Cache
    ends: tuple[int, int, int]

    def put(self, tile: Any, tokens: slice, columns: slice) -> None:
        """Finished columns of some tokens, counted through all batches."""
        starts = (0, *self.ends[:2])
        for start, end, target in zip(starts, self.ends, (self._queries, self.keys.put, self.values.put), strict=True):
            first, last = max(start, columns.start), min(end, columns.stop)
            if first < last:
                here = slice(first - columns.start, last - columns.start)
                target(tile[:, here], tokens, slice(first - start, last - start))

    def _queries(self, tile: Any, tokens: slice, columns: slice) -> None:
        batch, sequence, width = self.queries.shape
        store(self.queries.reshape((batch * sequence, width))[tokens, columns], rounded(tile, self.queries.dtype))

    def made(self) -> Any:
        """What the kernel returns."""
        return self.queries, self.keys.cache, self.values.cache


class SquaredSums:
    """For each token the sum of squares of its queries, of its keys, or of its values, as projected.

    Args:
        targets: by kind of head (B, S, 1) in HBM.
        parts: of some columns: the kinds of heads, and the columns of each.
        ends: by kind the column after its last one.
    """

    def __init__(
        self, targets: dict[str, Any], parts: Callable[[slice], list[tuple[str, slice]]], ends: dict[str, int]
    ) -> None:
        self._targets, self._parts, self._ends = targets, parts, ends
        self._begun: dict[tuple[str, int], Any] = {}

    def add(self, tile: Any, tokens: slice, columns: slice) -> None:
        """Columns of some tokens; after the last ones of a kind its sums are stored."""
        for kind, part in self._parts(columns):
            if kind in self._targets:
                self._add(kind, tile[:, part.start - columns.start : part.stop - columns.start], tokens, part.stop)

    def _add(self, kind: str, tile: Any, tokens: slice, stop: int) -> None:
        total, before = sbuf((tile.shape[0], 1), nl.float32), self._begun.pop((kind, tokens.start), None)
        squares = sbuf(tile.shape, nl.float32)
        nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
        if before is not None:
            nisa.tensor_tensor(dst=total, data1=total, data2=before, op=nl.add)
        if stop < self._ends[kind]:
            self._begun[kind, tokens.start] = total
            return
        target = self._targets[kind]
        store(target.reshape((target.shape[0] * target.shape[1], 1))[tokens], rounded(total, target.dtype))


def rounded(tile: Any, dtype: Any) -> Any:
    """A tile in a dtype: itself, or a copy."""
    if tile.dtype == dtype:
        return tile
    made = sbuf(tile.shape, dtype)
    nisa.tensor_copy(dst=made, src=tile)
    return made


def by_batch(tokens: slice, sequence: int) -> list[tuple[int, slice, slice]]:
    """Tokens counted through all batches: the batch, their place among these tokens, and in their batch."""
    found = []
    for b in range(tokens.start // sequence, (tokens.stop - 1) // sequence + 1):
        first, last = max(tokens.start, b * sequence), min(tokens.stop, (b + 1) * sequence)
        here = slice(first - tokens.start, last - tokens.start)
        found.append((b, here, slice(first - b * sequence, last - b * sequence)))
    return found


def limits_of(dtype: Any, least: float | None, most: float | None) -> tuple[float, float]:
    """What scaled numbers are clipped to for a cache of a dtype."""
    top = most if most is not None else largest(dtype) if dtype.itemsize == 1 else inf
    return -top if least is None else least, top
