"""Where products go: from PSUM through the pointwise epilogue to device memory, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit import transfers
from nki.graph.emit.kit.boxes import ONE, Cut, RangeBox, bands_of, boxes, even, lines, moves
from nki.graph.emit.kit.coordinates import Coordinates, Leaf
from nki.graph.emit.kit.engines import EngineOps, Form, Splat, storage
from nki.graph.emit.kit.expressions import apply
from nki.graph.emit.kit.panels import Dim
from nki.graph.emit.kit.product_group import ProductGroup, checked, split
from nki.graph.emit.kit.row_reducer import RowReducer
from nki.graph.ir import Group, Op, Value
from nki.target.model import Target

_KEPT_BYTES = 1 << 15
"""Bytes of a partition for inputs of the epilogue that several blocks use."""


@dataclass(frozen=True, slots=True)
class ResultBlock:
    """A block of the result, and how a tile holds it.

    Attributes:
        starts, counts: by dimension of the arrangement.
        order: the dimensions that each dimension of the tile goes through, the last one fastest.
    """

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    order: tuple[tuple[int, ...], ...]


class Results:
    """The outputs of a group whose first operation is a product.

    Args:
        group: the product, others of its left operand, then pointwise operations, then transposes.
        target: where the kernel runs.

    Raises:
        GraphError: an epilogue that is not pointwise on the product (``graph.unsupported``).
    """

    def __init__(self, group: Group, target: Target) -> None:
        self._group = group
        self._target = target
        parts = split(group)
        self._where = Coordinates(parts.inner)
        self._parts = checked(parts, self._where)
        self._read = {value: leaf for value, leaf in self._where.leaves.items() if leaf.source not in parts.given}
        self._epilogue = _needed(parts, self._read)
        self._known: dict[Value, NkiTensor] = {}
        self._sizes: tuple[int, ...] = ()
        self._leaves: dict[Value, list[tuple[Dim, ...]]] = {}
        self._ends: dict[Value, list[tuple[Dim, ...]]] = {}
        self._engines = EngineOps(target)
        self._kept: dict[object, NkiTensor] = {}
        self._kept_bytes = 0

    def bind(self, tensors: tuple[NkiTensor, ...]) -> dict[Value, NkiTensor]:
        """The device tensors of the group's inputs and outputs, by value."""
        values = (*self._group.inputs, *self._group.outputs)
        self._known = dict(zip(values, tensors, strict=True))
        self._engines, self._kept, self._kept_bytes = EngineOps(self._target), {}, 0
        return self._known

    def arrange(self, *sizes: int) -> None:
        """How the elements of the result, in row-major order, are counted in the blocks that come."""
        self._sizes = sizes
        self._leaves = {value: self._where.arranged(leaf, sizes) for value, leaf in self._read.items()}
        stored = {value: self._parts.stored(self._where, value) for value in self._group.outputs}
        self._ends = {value: self._where.arranged(leaf, sizes) for value, leaf in stored.items() if leaf is not None}

    def put(self, part: ResultBlock, *sums: NkiTensor) -> None:
        """Take a block of each product; they may be in PSUM."""
        roots = [op.results[0] for op in self._parts.roots]
        values: dict[Value, Form] = {value: self._whole(value, x) for value, x in zip(roots, sums, strict=True)}
        for value, leaf in self._read.items():
            values[value] = self._leaf(value, leaf, part)
        if self._epilogue:
            reducer = RowReducer(sums[0].shape)
            values = apply(self._epilogue, values, engines=self._engines, keep=self._parts.wanted, reduce=reducer)
        done = {value: self._finished(value, values[value], sums[0].shape) for value in self._parts.wanted}
        for value in self._group.outputs:
            self._store(value, part, done[self._parts.ends[value][0] if value in self._ends else value])

    def _whole(self, value: Value, tile: NkiTensor) -> NkiTensor:
        """Sums of integers as integers, if the epilogue computes with them."""
        dtype = storage(value.type.dtype)
        return tile if dtype.is_float or not self._epilogue else self._engines.copy(tile, dtype)

    def _finished(self, value: Value, form: Form, shape: Sequence[int]) -> NkiTensor:
        """A tile in SBUF with the output's dtype and all elements of the block."""
        dtype = storage(value.type.dtype)
        if isinstance(form, Splat):
            return self._engines.filled(form.value, dtype, shape)
        if form.buffer is nl.sbuf and form.dtype == dtype and form.shape == tuple(shape):
            return form
        return self._engines.copy(form, dtype, nl.ndarray(tuple(shape), dtype=dtype, buffer=nl.sbuf))

    def _store(self, value: Value, part: ResultBlock, tile: NkiTensor) -> None:
        if value in self._ends:
            self._scatter(value, part, tile)
            return
        out = self._known[value].reshape(self._sizes)
        there = out[tuple(slice(start, start + count) for start, count in zip(part.starts, part.counts, strict=True))]
        transfers.copy(dst=there.permute(tuple(dim for dims in part.order for dim in dims)), src=tile)

    def _scatter(self, value: Value, part: ResultBlock, tile: NkiTensor) -> None:
        """A block of an output whose elements are in another order than those of the product."""
        dims = self._ends[value]
        bands = [
            bands_of([list(boxes(dims[dim], part.starts[dim], part.counts[dim])) for dim in group])
            for group in part.order
        ]
        for move in (move for pieces in combinations(*bands) for move in moves(pieces)):
            transfers.copy(dst=self._known[value].ap(move.pattern, offset=move.offset), src=tile[move.here])

    # --- what the epilogue reads

    def _leaf(self, value: Value, leaf: Leaf, part: ResultBlock) -> NkiTensor:
        """The leaf's elements for a block; dimensions of the tile along which it is repeated have size 1."""
        dims = self._leaves[value]
        varies = tuple(any(dim.stride and dim.count > 1 for dim in group) for group in dims)
        present = tuple(position == 0 or any(varies[dim] for dim in group) for position, group in enumerate(part.order))
        shape = tuple(
            prod(part.counts[dim] for dim in group) if there else 1
            for there, group in zip(present, part.order, strict=True)
        )
        spans = tuple(
            (start, count) if changes else None
            for start, count, changes in zip(part.starts, part.counts, varies, strict=True)
        )
        key = (value, spans, shape)
        found = self._kept.get(key)
        if found is None:
            found = self._loaded(value, leaf, part, shape, present)
            self._keep(key, found)
        return found

    def _keep(self, key: object, tile: NkiTensor) -> None:
        size = prod(tile.shape[1:]) * tile.dtype.itemsize
        if self._kept_bytes + size > _KEPT_BYTES:
            self._kept, self._kept_bytes = {}, 0
        self._kept[key] = tile
        self._kept_bytes += size

    def _loaded(
        self, value: Value, leaf: Leaf, part: ResultBlock, shape: tuple[int, ...], present: tuple[bool, ...]
    ) -> NkiTensor:
        """A new tile; what is `present` starts where the block does, even if the block has one element there."""
        tile = nl.ndarray(shape, dtype=storage(value.type.dtype), buffer=nl.sbuf)
        cut = lines if leaf.source is None else boxes
        bands = [
            bands_of([self._cut(cut, value, part, dim) for dim in group]) if there else [ONE]
            for there, group in zip(present, part.order, strict=True)
        ]
        for pieces in combinations(*bands):
            self._fill(tile, leaf, pieces)
        return tile

    def _cut(self, cut: Cut, value: Value, part: ResultBlock, dim: int) -> list[RangeBox]:
        return list(cut(self._leaves[value][dim], part.starts[dim], part.counts[dim]))

    def _fill(self, tile: NkiTensor, leaf: Leaf, pieces: Sequence[RangeBox]) -> None:
        if leaf.source is not None:
            for move in moves(pieces):
                source = self._known[leaf.source].ap(move.pattern, offset=move.offset)
                transfers.copy(dst=tile[move.here], src=source)
            return
        rows, *free = pieces
        for part in even(rows):
            self._count(tile, part, free)

    def _count(self, tile: NkiTensor, rows: RangeBox, free: Sequence[RangeBox]) -> None:
        """Positions, on partitions that are a fixed step apart."""
        there = tile[tuple(slice(piece.at, piece.at + piece.count) for piece in (rows, *free))]
        made = nl.ndarray(there.shape, dtype=tile.dtype, buffer=nl.sbuf) if rows.at else there
        ((step, _),) = rows.pattern
        nisa.iota(
            dst=made,
            pattern=[list(pair) for piece in free for pair in piece.pattern] or [[0, 1]],
            offset=rows.offset + sum(piece.offset for piece in free),
            channel_multiplier=step if rows.count > 1 else 0,
        )
        if rows.at:  # engines start at few partitions, transfers at any
            transfers.copy(dst=there, src=made)


def _needed(parts: ProductGroup, read: Mapping[Value, Leaf]) -> tuple[Op, ...]:
    """The epilogue without what leads to its leaves only."""
    wanted, kept = set(parts.wanted), []
    for op in reversed(parts.epilogue):
        if op.results[0] in wanted and op.results[0] not in read:
            kept.append(op)
            wanted.update(op.operands)
    return tuple(reversed(kept))
