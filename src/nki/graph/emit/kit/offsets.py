"""Where slices begin that indices choose at run time: element offsets, in exact 32-bit integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.combine import spread
from nki.graph.emit.kit.panels import Dim, joined, runs, strides_of
from nki.graph.ir import Value
from nki.isa import alu
from nki.target.model import Target

_MOST_COLUMNS = 64

_MOST_DIMS = 4
"""Dimensions of a slice that one transfer moves: the rows are one more."""


@dataclass(frozen=True, slots=True)
class IndexBlock:
    """A block of indices: number ``first + p * columns + c`` is at partition p, column c."""

    first: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What the indices mean.

    Attributes:
        steps: of the operand, for each component of an index, in elements.
        limits: the largest start of a slice, for each component.
        base: for each index, elements to add; None for none.
        clamped: whether starts outside move to the nearest one inside; else their offset is -1.
    """

    steps: tuple[int, ...]
    limits: tuple[int, ...]
    base: np.ndarray | None
    clamped: bool


class Indices:
    """The start indices of a gather or scatter in device memory.

    Args:
        tensor, value: all of them.
        vector_dim: dimension of the components; the rank if there is one component.
    """

    def __init__(self, tensor: NkiTensor, value: Value, vector_dim: int) -> None:
        shape, steps = value.type.shape, strides_of(value.type.shape)
        self._tensor = tensor
        self.dims = joined([Dim(shape[d], steps[d]) for d in range(len(shape)) if d != vector_dim])[0]
        self._component = steps[vector_dim] if vector_dim < len(shape) else 0
        self._wide = value.type.dtype in (int32, uint32)
        self.count = prod(dim.count for dim in self.dims)

    def spans(self, rows: int, several: bool) -> Iterator[IndexBlock]:
        """All indices in blocks; of several columns if that is wanted and they lie evenly."""
        first = 0
        while first < self.count:
            left = self.count - first
            height = min(rows, left)
            width = min(_MOST_COLUMNS, left // height) if several and len(self.dims) == 1 else 1
            yield IndexBlock(first, height, width)
            first += height * width

    def offsets(self, span: IndexBlock, choice: Choice, across: bool = False) -> NkiTensor:
        """Element offsets of a block, int32 (rows, columns); `across` is (rows, rows), the same in each partition."""
        shape = (span.rows, span.rows if across else span.columns)
        total, valid = self._base(span, choice, shape, across), None
        for component, (step, limit) in enumerate(zip(choice.steps, choice.limits, strict=True)):
            index = self._loaded(span, component, shape, across)
            inside = _limited(index, limit)
            if not choice.clamped:
                same = _new(shape)
                nisa.tensor_tensor(dst=same, data1=inside, data2=index, op=alu.EQUAL)
                valid = same if valid is None else _op(valid, same, alu.MULTIPLY)
            moved = _op(inside, _number(step, shape), alu.MULTIPLY) if step != 1 else inside
            total = moved if total is None else _op(total, moved, alu.ADD)
        if total is None:
            total = _new(shape)
            nisa.memset(dst=total, value=0)
        if valid is None:
            return total
        kept = _op(_op(total, _number(1, shape), alu.ADD), valid, alu.MULTIPLY)
        return _op(kept, _number(1, shape), alu.SUBTRACT)

    def _base(self, span: IndexBlock, choice: Choice, shape: tuple[int, int], across: bool) -> NkiTensor | None:
        if choice.base is None:
            return None
        table = nl.shared_constant(np.ascontiguousarray(choice.base, dtype=np.int32))
        tile = _new(shape)
        steps = [[0, span.rows], [1, span.rows]] if across else [[span.columns, span.rows], [1, span.columns]]
        nisa.dma_copy(dst=tile, src=table.ap(steps, offset=span.first))
        return tile

    def _loaded(self, span: IndexBlock, component: int, shape: tuple[int, int], across: bool) -> NkiTensor:
        dtype = self._tensor.dtype if self._wide else int32
        tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
        start = component * self._component
        for run in runs(self.dims, span.first, span.rows * span.columns):
            there = slice(run.at, run.at + run.count)
            if across:
                dst, steps = tile[:, there], [[0, span.rows], [run.stride, run.count]]
            elif span.columns == 1:
                dst, steps = tile[there, :], [[run.stride, run.count], [1, 1]]
            else:
                dst, steps = tile, [[span.columns * run.stride, span.rows], [run.stride, span.columns]]
            nisa.dma_copy(dst=dst, src=self._tensor.ap(steps, offset=start + run.offset))
        return tile if dtype == int32 else tile.view(int32)


def _new(shape: Sequence[int]) -> NkiTensor:
    return nl.ndarray(tuple(shape), dtype=int32, buffer=nl.sbuf)


def _number(value: int, shape: Sequence[int]) -> NkiTensor:
    column = _new((shape[0], 1))
    nisa.memset(dst=column, value=value)
    return spread(column, shape)


def _op(a: NkiTensor, b: NkiTensor, op: object) -> NkiTensor:
    result = _new(a.shape)
    nisa.tensor_tensor(dst=result, data1=a, data2=b, op=op)
    return result


def _limited(index: NkiTensor, limit: int) -> NkiTensor:
    above = _op(index, _number(0, index.shape), alu.MAXIMUM)
    return _op(above, _number(limit, index.shape), alu.MINIMUM)


@dataclass(frozen=True, slots=True)
class WindowPart:
    """A part of a slice that one transfer moves for many starts.

    Attributes:
        offset, own: where it begins in the slice, and on the other side, in elements.
        window, there: its dimensions in the slice, and on the other side.
    """

    offset: int
    own: int
    window: tuple[Dim, ...]
    there: tuple[Dim, ...]


def window_parts(
    sides: Sequence[tuple[Dim, ...]], most: int = 0, offset: int = 0, own: int = 0
) -> Iterator[WindowPart]:
    """A slice in parts of few dimensions.

    Args:
        sides: its dimensions, and those on the other side.
        most: elements of a part; 0 for any number.
        offset, own: where it begins on both sides.
    """
    window, there = sides
    inner, few = prod(dim.count for dim in window[1:]), len(window) <= _MOST_DIMS
    if few and (not most or inner * window[0].count <= most):
        yield WindowPart(offset, own, window, there)
        return
    step = max(1, most // inner) if few else 1
    for first in range(0, window[0].count, step):
        count = min(step, window[0].count - first)
        moved = offset + first * window[0].stride, own + first * there[0].stride
        if count == 1 and len(window) > 1:
            yield from window_parts((window[1:], there[1:]), most, *moved)
        else:
            heads = Dim(count, window[0].stride), Dim(count, there[0].stride)
            yield WindowPart(*moved, (heads[0], *window[1:]), (heads[1], *there[1:]))


Rows = Callable[[int, int], NkiTensor]
"""A view of some rows of the other side of a copy: by start and count."""


def copy_rows(
    flat: NkiTensor,
    offset: int,
    window: Sequence[Dim],
    starts: NkiTensor,
    other: Rows,
    *,
    scatter: bool,
    skip: bool,
    target: Target,
) -> None:
    """Slices of a flat tensor in device memory, at offsets that are known at run time, from or to rows.

    Args:
        offset: elements to add to all starts.
        window: of a slice.
        starts: int32 (rows, 1); negative ones have no slice.
        other: where the rows are.
        scatter: whether the slices are written.
        skip: whether starts may be outside.
    """
    mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
    count = starts.shape[0]
    pattern = [[dim.stride, dim.count] for dim in window]
    if target.has("dma_indirect"):
        slices = flat.ap([[1, count], *pattern], offset=offset, vector_offset=starts)
        dst, src = (slices, other(0, count)) if scatter else (other(0, count), slices)
        nisa.dma_copy(dst=dst, src=src, oob_mode=mode)
        return
    for row in range(count):
        one = flat.ap([[1, 1], *pattern], offset=offset, scalar_offset=starts[row : row + 1, :])
        dst, src = (one, other(row, 1)) if scatter else (other(row, 1), one)
        nisa.dma_copy(dst=dst, src=src, oob_mode=mode)


def batch_base(counts: Sequence[int], along: Sequence[int], steps: Sequence[int]) -> np.ndarray | None:
    """Elements by which batching dimensions move each slice: index dimension `along[i]` by `steps[i]`."""
    if not along:
        return None
    base = np.zeros(tuple(counts), np.int64)
    for dim, step in zip(along, steps, strict=True):
        base += step * np.arange(counts[dim]).reshape([-1 if d == dim else 1 for d in range(len(counts))])
    return base.reshape(-1)
