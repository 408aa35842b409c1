"""How an iteration space is cut into tiles, and what a tile of an operand is in device memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, int32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.access import Index, Leaf, Resolved
from nki.graph.emit.kit.conversions import converted, converted_number, splat_of
from nki.graph.emit.kit.engines import EngineOps, Form, Splat, storage
from nki.graph.ir import Op, Value
from nki.target.model import Target

MOST_ELEMENTS = 4096
"""Elements per partition of the largest tiles: the overhead of an instruction is a few percent by then."""

_FREE_DIMS = 4
_CACHED_BYTES = 49152
"""Bytes per partition of tiles that are kept because later blocks read the same elements."""

_SBUF_SHARE = 0.7
_BUFFERS = 2


@dataclass(frozen=True, slots=True)
class Extent:
    """`count` indices of an axis, `step` apart."""

    axis: int
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class TileBlock:
    """Elements of a space that are in a tile ``(rows.count, *free counts)``.

    Attributes:
        start: first index of each axis.
        rows: what runs over partitions.
        free: what runs over the elements of a partition; may name the axis of the rows again.
    """

    start: tuple[int, ...]
    rows: Extent
    free: tuple[Extent, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """How large tiles are that vary along everything."""
        return (self.rows.count, *(extent.count for extent in self.free)) if self.free else (self.rows.count, 1)

    def shape_of(self, index: Index) -> tuple[int, ...]:
        """How large the tile of an operand is: 1 where it does not vary."""
        sizes = [extent.count if index.step(extent.axis) else 1 for extent in self.free]
        return (self.rows.count, *(sizes or [1]))

    def pattern(self, index: Index) -> tuple[list[list[int]], int]:
        """Strides and counts in device memory, and the offset, for the tile of an operand."""
        offset = index.offset + sum(index.step(axis) * start for axis, start in enumerate(self.start))
        pairs = [[index.step(self.rows.axis) * self.rows.step, self.rows.count]]
        for extent in self.free:
            step = index.step(extent.axis) * extent.step
            if not step or extent.count == 1:
                continue
            if len(pairs) > 1 and pairs[-1][0] == step * extent.count:
                pairs[-1] = [step, pairs[-1][1] * extent.count]
            else:
                pairs.append([step, extent.count])
        return (pairs if len(pairs) > 1 else [*pairs, [1, 1]]), offset


def load(tensor: NkiTensor, index: Index, block: TileBlock, engines: EngineOps) -> NkiTensor:
    """The tile of an operand, from device memory."""
    tile = engines.new(block.shape_of(index), tensor.dtype)
    pairs, offset = block.pattern(index)
    nisa.dma_copy(dst=tile, src=tensor.ap(pairs, offset=offset))
    return tile


def store(tensor: NkiTensor, index: Index, block: TileBlock, tile: NkiTensor, engines: EngineOps) -> None:
    """Write a tile of a result to device memory."""
    shape = block.shape_of(index)
    if tile.shape != shape or not tile.is_contiguous():
        tile = engines.copy(tile, tile.dtype, engines.new(shape, tile.dtype))
    pairs, offset = block.pattern(index)
    nisa.dma_copy(dst=tensor.ap(pairs, offset=offset), src=tile)


class TileLoader:
    """Brings leaves into SBUF, block by block.

    Args:
        tensors: device memory of the group's inputs.
    """

    def __init__(self, engines: EngineOps, tensors: Mapping[Value, NkiTensor]) -> None:
        self._engines = engines
        self._tensors = tensors
        self._cache: dict[tuple[object, ...], NkiTensor] = {}
        self._cached_bytes = 0

    def form(self, leaf: Leaf, block: TileBlock) -> Form:
        """What the leaf is in a block."""
        if isinstance(leaf.source, Op):
            if leaf.source.name == "constant":
                number = splat_of(leaf.source.attributes["value"])
                if number is not None:
                    return Splat(number)
            elif not leaf.index.terms:
                return converted_number(leaf.index.offset, leaf.value.type.dtype)
        pairs, offset = block.pattern(leaf.index)
        key = (leaf.value, offset, tuple(map(tuple, pairs)), block.shape_of(leaf.index))
        if key not in self._cache:
            self._keep(key, self._fetch(leaf, block))
        return self._cache[key]

    def _keep(self, key: tuple[object, ...], tile: NkiTensor) -> None:
        size = prod(tile.shape[1:]) * tile.dtype.itemsize
        while self._cache and self._cached_bytes + size > _CACHED_BYTES:
            old = self._cache.pop(next(iter(self._cache)))
            self._cached_bytes -= prod(old.shape[1:]) * old.dtype.itemsize
        self._cache[key] = tile
        self._cached_bytes += size

    def _fetch(self, leaf: Leaf, block: TileBlock) -> NkiTensor:
        if isinstance(leaf.source, Value):
            tensor = self._tensors[leaf.source]
            tile = load(tensor, leaf.index, block, self._engines)
            return tile.view(storage(tile.dtype)) if tile.dtype != storage(tile.dtype) else tile
        dtype = storage(leaf.value.type.dtype)
        if leaf.source.name == "iota":
            return counted(leaf.index, block, dtype, self._engines)
        array = np.ascontiguousarray(leaf.source.attributes["value"])
        return load(nl.shared_constant(_stored(array, dtype)), leaf.index, block, self._engines)


def _stored(array: np.ndarray, dtype: DType) -> np.ndarray:
    return array.astype(dtype.numpy) if array.dtype != dtype.numpy else array


def counted(index: Index, block: TileBlock, dtype: DType, engines: EngineOps) -> NkiTensor:
    """An affine function of the position, as `nisa.iota` makes it."""
    exact = dtype if dtype in (int32,) or (dtype.is_float and dtype.itemsize == int32.itemsize) else int32
    tile = engines.new(block.shape_of(index), exact)
    pairs, offset = block.pattern(index)
    rows, *free = pairs
    counts = [[step, count] for step, count in free] if prod(tile.shape[1:]) > 1 else [[0, 1]]
    nisa.iota(dst=tile, pattern=counts, offset=offset, channel_multiplier=rows[0])
    return tile if exact == dtype else converted(engines, tile, int32, dtype)


# ------------------------------------------------------------------------------------------------------------- cutting


def merged(resolved: Resolved, indices: Sequence[Index]) -> list[list[int]]:
    """Axes in groups that every operand and result steps through as if they were one."""
    sizes = resolved.space.sizes
    groups: list[list[int]] = []
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        if groups:
            last = groups[-1][-1]
            if all(index.step(last) == index.step(axis) * size for index in indices):
                groups[-1].append(axis)
                continue
        groups.append([axis])
    return groups


@dataclass(frozen=True, slots=True)
class Merged:
    """A space with merged axes: sizes, and how the indices of operands look there."""

    sizes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, resolved: Resolved, indices: Sequence[Index]) -> Merged:
        """What can be merged is."""
        groups = merged(resolved, indices)
        sizes = tuple(prod(resolved.space.sizes[axis] for axis in group) for group in groups)
        return cls(sizes or (1,), tuple(map(tuple, groups)) or ((),))

    def index(self, index: Index) -> Index:
        """A position over merged axes."""
        terms = [(at, index.step(group[-1])) for at, group in enumerate(self.groups) if group]
        return Index(index.offset, tuple((at, step) for at, step in terms if step))


def budget(resolved: Resolved, target: Target, extra: int = 4) -> int:
    """Elements per partition for which all tiles that live at a time fit in SBUF, twice.

    Args:
        extra: float32 tiles that functions need besides.
    """
    bytes_each = sum(leaf.value.type.dtype.itemsize for leaf in resolved.leaves)
    bytes_each += 4 * (_most_alive(resolved) + extra)
    room = target.sbuf.usable_bytes_per_partition * _SBUF_SHARE - _CACHED_BYTES
    return max(64, min(MOST_ELEMENTS, int(room / (_BUFFERS * bytes_each)) // 64 * 64))


def _most_alive(resolved: Resolved) -> int:
    last = {operand: at for at, op in enumerate(resolved.ops) for operand in op.operands}
    for value in resolved.results.values():
        last[value] = len(resolved.ops)
    alive = most = 0
    born = {op.results[0]: at for at, op in enumerate(resolved.ops)}
    for at in range(len(resolved.ops)):
        alive = sum(1 for value, start in born.items() if start <= at <= last.get(value, start))
        most = max(most, alive)
    return most


def blocks(sizes: Sequence[int], row_axis: int, partitions: int, elements: int) -> Iterator[TileBlock]:
    """All of a space, the row axis on partitions.

    A partition takes neighbouring rows, so that transfers are long; what exceeds `elements` is cut along outer axes.
    """
    for first, count, repeat in row_parts(sizes[row_axis], partitions):
        inner = [
            Extent(axis, 1, repeat if axis == row_axis else size)
            for axis, size in enumerate(sizes)
            if axis != row_axis or repeat > 1
        ]
        rows = Extent(row_axis, repeat, count)
        yield from cut(sizes, rows, first, [extent for extent in inner if extent.count > 1], elements)


def row_parts(size: int, partitions: int) -> Iterator[tuple[int, int, int]]:
    """First row, partitions and rows of each, such that all partitions are used, and what is left."""
    repeat = size // partitions
    if repeat:
        count = partitions
        yield 0, count, repeat
    if size % partitions:
        yield repeat * partitions, size % partitions, 1


def cut(
    sizes: Sequence[int], rows: Extent, first: int, free: list[Extent], elements: int, dims: int = _FREE_DIMS
) -> Iterator[TileBlock]:
    """Blocks whose tiles have at most that many elements per partition, and so many free dimensions."""
    whole = len(free)
    size = 1
    while whole and size * free[whole - 1].count <= elements and len(free) - whole < dims:
        whole -= 1
        size *= free[whole].count
    kept = free[whole:]
    looped = free[:whole]
    piece = 1
    if looped and len(kept) < dims and elements // size > 1:
        piece = elements // size
    start = [0] * len(sizes)
    yield from _loop(start, rows, first, looped, piece, kept)


def _loop(
    start: list[int], rows: Extent, first: int, looped: list[Extent], piece: int, kept: list[Extent]
) -> Iterator[TileBlock]:
    if not looped:
        begin = list(start)
        begin[rows.axis] += first
        yield TileBlock(tuple(begin), rows, tuple(kept))
        return
    outer, *inner = looped
    step = 1 if inner else piece
    for at in range(0, outer.count, step):
        count = min(step, outer.count - at)
        begin = list(start)
        begin[outer.axis] += at
        part = [Extent(outer.axis, 1, count)] if not inner and count > 1 else []
        yield from _loop(begin, rows, first, inner, piece, part + kept if not inner else kept)


def best_row_axis(sizes: Sequence[int], indices: Sequence[Index], partitions: int) -> int:
    """The axis for partitions: most lanes busy, then the longest transfers."""

    def merit(axis: int) -> tuple[float, int]:
        size = sizes[axis]
        steps = -(-size // partitions) if size <= partitions else size // partitions + bool(size % partitions)
        inner = prod(sizes[axis + 1 :])
        strided = sum(1 for index in indices if index.terms and inner == 1 and size <= partitions)
        run = inner * max(1, size // partitions)
        return round(size / (steps * partitions), 1), min(run, 512) - 512 * strided

    return max(range(len(sizes)), key=merit)
