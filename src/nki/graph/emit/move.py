"""Groups that only move elements: device memory to device memory by DMA, in few and long transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit import squares
from nki.graph.emit.kit.conversions import splat_of
from nki.graph.emit.kit.engines import EngineOps, Number, storage
from nki.graph.emit.kit.squares import SQUARE, padded
from nki.graph.emit.pointwise import bound
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value
from nki.target.model import Target

_MOST_DIMS = 5
_FILL_ELEMENTS = 2048


@dataclass(frozen=True, slots=True)
class Dim:
    """One loop of a copy: so many steps, and how far each leads in both tensors."""

    count: int
    to: int
    source: int


@dataclass(frozen=True, slots=True)
class StridedBox:
    """Elements of a row-major tensor: where they begin, their shape and their strides."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> StridedBox:
        """All elements."""
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= size
        return cls(0, tuple(shape), tuple(reversed(strides)))

    def sliced(self, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> StridedBox:
        """Every step-th element from a start, in each dimension."""
        offset = self.offset + sum(a * b for a, b in zip(starts, self.strides, strict=True))
        return StridedBox(offset, tuple(sizes), tuple(a * b for a, b in zip(steps, self.strides, strict=True)))

    def permuted(self, order: Sequence[int]) -> StridedBox:
        """Dimension i of the result is dimension ``order[i]``."""
        return StridedBox(self.offset, tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def emit_move(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of operations that move elements.

    Raises:
        GraphError: an operation of another kind.
    """
    for op in group.ops:
        if op.name not in _RULES and op.name != "constant":
            raise unsupported(op, "it does not only move elements", "give it a group of its own")

    def kernel(*tensors: NkiTensor) -> None:
        memory = bound(group, tensors)
        mover = Mover(EngineOps(target), memory, group.ops)
        for op in group.ops:
            if op.name != "constant":
                _RULES[op.name](mover, op)

    return kernel


class Mover:
    """One run of the kernel.

    Args:
        memory: device memory of inputs and outputs; what is in between gets its own.
    """

    def __init__(self, engines: EngineOps, memory: dict[Value, NkiTensor], ops: Sequence[Op]) -> None:
        self.e = engines
        self._memory = memory
        self.constants = {op.results[0]: np.asarray(op.attributes["value"]) for op in ops if op.name == "constant"}

    def tensor(self, value: Value) -> NkiTensor:
        """Device memory of a value, as one row of elements."""
        if value not in self._memory:
            dtype = storage(value.type.dtype)
            if value in self.constants:
                array = np.ascontiguousarray(self.constants[value]).astype(dtype.numpy)
                self._memory[value] = nl.shared_constant(array)
            else:
                self._memory[value] = nl.ndarray(value.type.shape or (1,), dtype=dtype, buffer=nl.hbm)
        tensor = self._memory[value]
        return tensor.reshape((tensor.size,))

    def copy(
        self,
        to: NkiTensor,
        here: StridedBox,
        source: NkiTensor,
        there: StridedBox,
        *,
        start: int | nisa.NkiScalar = 0,
        source_start: int | nisa.NkiScalar = 0,
    ) -> None:
        """``to[here] = source[there]``, dimension by dimension; the starts move the boxes, by elements."""
        if not here.size:
            return
        dims = joined(here, there)
        loops, inner = dims[:-_MOST_DIMS], dims[-_MOST_DIMS:]
        for at in product(*(range(dim.count) for dim in loops)):
            begin = here.offset + sum(i * dim.to for i, dim in zip(at, loops, strict=True))
            first = there.offset + sum(i * dim.source for i, dim in zip(at, loops, strict=True))
            nisa.dma_copy(
                dst=_part(to, [[dim.to, dim.count] for dim in inner], begin, start),
                src=_part(source, [[dim.source, dim.count] for dim in inner], first, source_start),
            )

    def fill(self, to: NkiTensor, here: StridedBox, value: NkiTensor) -> None:
        """``to[here] =`` what every element of a tile ``(partitions, count)`` is."""
        if not here.size:
            return
        partitions, count = value.shape
        dims = joined(here, here)
        inner, rows, loops = dims[-1], dims[-2] if len(dims) > 1 else Dim(1, 0, 0), dims[:-2]
        for at in product(*(range(dim.count) for dim in loops)):
            begin = here.offset + sum(i * dim.to for i, dim in zip(at, loops, strict=True))
            for row in range(0, rows.count, partitions):
                for column in range(0, inner.count, count):
                    height, width = min(partitions, rows.count - row), min(count, inner.count - column)
                    pairs = [[rows.to, height], [inner.to, width]]
                    offset = begin + row * rows.to + column * inner.to
                    nisa.dma_copy(dst=to.ap(pairs, offset=offset), src=value[0:height, 0:width])

    def splat(self, value: Value, count: int, rows: int) -> NkiTensor:
        """A tile of a scalar."""
        dtype = storage(value.type.dtype)
        shape = (min(rows, nl.tile_size.pmax), min(count, _FILL_ELEMENTS))
        number: Number | None = splat_of(self.constants[value]) if value in self.constants else None
        if number is not None:
            return self.e.filled(number, dtype, shape)
        column = self.e.new((shape[0], 1), dtype)
        nisa.dma_copy(dst=column, src=self.tensor(value).ap([[0, shape[0]], [1, 1]]))
        tile = self.e.new(shape, dtype)
        nisa.tensor_copy(dst=tile, src=self.e.fit(column, shape))
        return tile


def joined(here: StridedBox, there: StridedBox) -> list[Dim]:
    """The loops of a copy, neighbours joined where both sides go on as if they were one."""
    dims: list[Dim] = []
    for count, to, source in zip(here.shape, here.strides, there.strides, strict=True):
        if count == 1:
            continue
        if dims and dims[-1].to == to * count and dims[-1].source == source * count:
            dims[-1] = Dim(dims[-1].count * count, to, source)
        else:
            dims.append(Dim(count, to, source))
    return dims or [Dim(1, 1, 1)]


# ------------------------------------------------------------------------------------------------------------ copies


def _reshape(m: Mover, op: Op) -> None:
    (source,), (result,) = op.operands, op.results
    box = StridedBox.whole((source.type.size,))
    m.copy(m.tensor(result), box, m.tensor(source), box)


def _slice(m: Mover, op: Op) -> None:
    (source,), (result,) = op.operands, op.results
    box = StridedBox.whole(source.type.shape)
    there = box.sliced(op.attributes["start_indices"], result.type.shape, op.attributes["strides"])
    m.copy(m.tensor(result), StridedBox.whole(result.type.shape), m.tensor(source), there)


def _reverse(m: Mover, op: Op) -> None:
    (source,), (result,) = op.operands, op.results
    shape, dims = source.type.shape, op.attributes["dimensions"]
    starts = [size - 1 if dim in dims else 0 for dim, size in enumerate(shape)]
    steps = [-1 if dim in dims else 1 for dim in range(len(shape))]
    there = StridedBox.whole(shape).sliced(starts, shape, steps)
    m.copy(m.tensor(result), StridedBox.whole(shape), m.tensor(source), there)


def _concatenate(m: Mover, op: Op) -> None:
    (result,) = op.results
    dimension = int(op.attributes["dimension"])
    whole, to = StridedBox.whole(result.type.shape), m.tensor(result)
    start = [0] * len(result.type.shape)
    for source in op.operands:
        shape = source.type.shape
        m.copy(to, whole.sliced(start, shape, [1] * len(shape)), m.tensor(source), StridedBox.whole(shape))
        start[dimension] += shape[dimension]


def _broadcast_in_dim(m: Mover, op: Op) -> None:
    (source,), (result,) = op.operands, op.results
    whole = StridedBox.whole(source.type.shape)
    strides = [0] * len(result.type.shape)
    for dim, size, stride in zip(op.attributes["broadcast_dimensions"], whole.shape, whole.strides, strict=True):
        strides[dim] = stride if size != 1 else 0
    there = StridedBox(0, result.type.shape, tuple(strides))
    m.copy(m.tensor(result), StridedBox.whole(result.type.shape), m.tensor(source), there)


# -------------------------------------------------------------------------------------------------------------- pad


def _pad(m: Mover, op: Op) -> None:
    source, number = op.operands
    (result,) = op.results
    low = op.attributes["edge_padding_low"]
    inner = op.attributes["interior_padding"]
    shape, wide = source.type.shape, result.type.shape
    first, starts, sizes, steps = [], [], [], []
    for at, between, size, limit in zip(low, inner, shape, wide, strict=True):
        step = between + 1
        skipped = max(0, -(at // step)) if at < 0 else 0
        begin = at + skipped * step
        first.append(skipped)
        starts.append(begin)
        sizes.append(max(0, min(size - skipped, -(-(limit - begin) // step))))
        steps.append(step)
    whole, to = StridedBox.whole(wide), m.tensor(result)
    boxes = [whole] if any(inner) else _around(whole, starts, sizes)
    boxes = [box for box in boxes if box.size]
    if boxes:
        tile = m.splat(number, max(joined(b, b)[-1].count for b in boxes), max(_rows(b) for b in boxes))
        for box in boxes:
            m.fill(to, box, tile)
    there = StridedBox.whole(shape).sliced(first, sizes, [1] * len(shape))
    m.copy(to, whole.sliced(starts, sizes, steps), m.tensor(source), there)


def _rows(box: StridedBox) -> int:
    dims = joined(box, box)
    return dims[-2].count if len(dims) > 1 else 1


def _around(whole: StridedBox, starts: Sequence[int], sizes: Sequence[int]) -> list[StridedBox]:
    """Boxes that cover what a box in the middle leaves."""
    found = []
    begin, extent = [0] * len(whole.shape), list(whole.shape)
    for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        for first, count in ((0, start), (start + size, whole.shape[dim] - start - size)):
            part = [*extent[:dim], count, *extent[dim + 1 :]]
            at = [*begin[:dim], first, *begin[dim + 1 :]]
            found.append(whole.sliced(at, part, [1] * len(part)))
        begin[dim], extent[dim] = start, size
    return found


# ---------------------------------------------------------------------------------------------------------- transposes


def _transpose(m: Mover, op: Op) -> None:
    (source,), (result,) = op.operands, op.results
    there = StridedBox.whole(source.type.shape).permuted(op.attributes["permutation"])
    transposed(m, m.tensor(result), StridedBox.whole(result.type.shape), m.tensor(source), there)


def transposed(m: Mover, to: NkiTensor, here: StridedBox, source: NkiTensor, there: StridedBox) -> None:
    """A copy whose rows lie across on the other side."""
    dims = joined(here, there)
    rows = [dim for dim in dims if dim.to == 1]
    columns = [dim for dim in dims if dim.source == 1]
    if not rows or not columns or rows[0] is columns[0] or min(rows[0].count, columns[0].count) < SQUARE:
        m.copy(to, here, source, there)
        return
    others = [dim for dim in dims if dim is not rows[0] and dim is not columns[0]]
    dtype = to.dtype
    if m.e.target.has("dma_transpose") and dtype.itemsize in m.e.target.dma.transpose_dtype_bytes:
        _by_dma(to, here.offset, source, there.offset, rows[0], columns[0], others)
    else:
        _by_squares(m, to, here.offset, source, there.offset, rows[0], columns[0], others)


def _by_dma(
    to: NkiTensor, here: int, source: NkiTensor, there: int, row: Dim, column: Dim, others: Sequence[Dim]
) -> None:
    """The DMA engines transpose; up to two more dimensions go with a transfer.

    Args:
        row: what runs along rows of the result.
        column: what runs along rows of the source.
    """
    loops, batch = others[:-2], others[-2:]
    for at in product(*(range(dim.count) for dim in loops)):
        begin = here + sum(i * dim.to for i, dim in zip(at, loops, strict=True))
        first = there + sum(i * dim.source for i, dim in zip(at, loops, strict=True))
        dst = [[column.to, column.count], *([dim.to, dim.count] for dim in batch), [1, row.count]]
        src = [[row.source, row.count], *([dim.source, dim.count] for dim in batch), [1, column.count]]
        nisa.dma_transpose(dst=to.ap(dst, offset=begin), src=source.ap(src, offset=first))


def _by_squares(
    m: Mover,
    to: NkiTensor,
    here: int,
    source: NkiTensor,
    there: int,
    row: Dim,
    column: Dim,
    others: Sequence[Dim],
) -> None:
    """Vector transposes squares of 32 x 32, bit for bit; what is left over is transposed with them and not stored."""
    partitions = nl.tile_size.pmax
    wide = _FILL_ELEMENTS // SQUARE * SQUARE
    for at in product(*(range(dim.count) for dim in others)):
        begin = here + sum(i * dim.to for i, dim in zip(at, others, strict=True))
        first = there + sum(i * dim.source for i, dim in zip(at, others, strict=True))
        for r in range(0, row.count, wide):
            for c in range(0, column.count, partitions):
                height, width = min(partitions, column.count - c), min(wide, row.count - r)
                tile = _square_tile(m, source, first + r * row.source + c, row, height, width)
                pairs = [[column.to, height], [1, width]]
                nisa.dma_copy(dst=to.ap(pairs, offset=begin + c * column.to + r), src=tile[0:height, 0:width])


def _square_tile(m: Mover, source: NkiTensor, first: int, row: Dim, height: int, width: int) -> NkiTensor:
    """``(height, width)`` of the transpose, in whole squares."""
    result = m.e.new((padded(height), padded(width)), source.dtype)
    for start in range(0, width, nl.tile_size.pmax):
        count = min(nl.tile_size.pmax, width - start)
        loaded = m.e.new((padded(count), padded(height)), source.dtype)
        if loaded.shape != (count, height):
            nisa.memset(dst=loaded, value=0)
        pairs = [[row.source, count], [1, height]]
        nisa.dma_copy(dst=loaded[0:count, 0:height], src=source.ap(pairs, offset=first + start * row.source))
        squares.transpose(result[:, start : start + padded(count)], loaded)
    return result


# -------------------------------------------------------------------------------------------------- dynamic addresses


def _start(m: Mover, indices: Sequence[Value], limits: Sequence[int], strides: Sequence[int]) -> int | nisa.NkiScalar:
    """Where a box begins whose first indices are known at run time only: each is brought into its limits first."""
    total: int | nisa.NkiScalar = 0
    for index, limit, stride in zip(indices, limits, strides, strict=True):
        if not limit:
            continue
        if index in m.constants:
            total = total + min(max(int(m.constants[index]), 0), limit) * stride
            continue
        scalar = nisa.scalar_load(m.tensor(index))
        total = scalar.maximum(0).minimum(limit) * stride + total
    return total


def _part(tensor: NkiTensor, pattern: list[list[int]], offset: int, start: int | nisa.NkiScalar) -> NkiTensor:
    if isinstance(start, int):
        return tensor.ap(pattern, offset=offset + start)
    return tensor.ap(pattern, offset=offset, scalar_offset=start)


def _dynamic_slice(m: Mover, op: Op) -> None:
    source, *indices = op.operands
    (result,) = op.results
    whole, here = StridedBox.whole(source.type.shape), StridedBox.whole(result.type.shape)
    limits = [a - b for a, b in zip(whole.shape, here.shape, strict=True)]
    there = StridedBox(0, here.shape, whole.strides)
    m.copy(m.tensor(result), here, m.tensor(source), there, source_start=_start(m, indices, limits, whole.strides))


def _dynamic_update_slice(m: Mover, op: Op) -> None:
    source, update, *indices = op.operands
    (result,) = op.results
    box = StridedBox.whole((source.type.size,))
    m.copy(m.tensor(result), box, m.tensor(source), box)
    whole, there = StridedBox.whole(source.type.shape), StridedBox.whole(update.type.shape)
    limits = [a - b for a, b in zip(whole.shape, there.shape, strict=True)]
    here = StridedBox(0, there.shape, whole.strides)
    m.copy(m.tensor(result), here, m.tensor(update), there, start=_start(m, indices, limits, whole.strides))


_RULES: Mapping[str, Callable[[Mover, Op], None]] = {
    "reshape": _reshape,
    "optimization_barrier": _reshape,
    "slice": _slice,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "broadcast_in_dim": _broadcast_in_dim,
    "pad": _pad,
    "transpose": _transpose,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
