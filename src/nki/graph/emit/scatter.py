"""Kernels for scatters: slices at run-time offsets are replaced or combined with, also where indices repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, bfloat16, float32, int32, uint8
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.graph.emit.kit.combine import Combination, combination, spread
from nki.graph.emit.kit.engines import storage
from nki.graph.emit.kit.offsets import (
    Choice,
    IndexBlock,
    Indices,
    Rows,
    WindowPart,
    batch_base,
    copy_rows,
    window_parts,
)
from nki.graph.emit.kit.panels import Dim, joined, runs, strides_of
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op
from nki.isa import alu
from nki.spec.operator import Operator
from nki.target.model import Target

_SLICE_BYTES = 16 << 10
"""Bytes of a slice that are combined at once, in a partition."""


def emit_scatter(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a scatter of any form; slices that are not inside change nothing, as StableHLO says.

    Raises:
        GraphError: several operands, or a region that is no single operator (``graph.unsupported``).
    """
    op = group.ops[-1]
    if len(op.results) != 1:
        raise unsupported(op, f"it updates {len(op.results)} operands together", "update each operand by itself")
    how = combination(op, op.regions[0], bits=True)

    def scatter(*tensors: NkiTensor) -> None:
        known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
        _Scatter(op, how, target).run(*(known[value] for value in (*op.operands, *op.results)))

    return scatter


class _Scatter:
    def __init__(self, op: Op, how: Combination, target: Target) -> None:
        self._op, self._how, self._target = op, how, target
        a = op.attributes
        operand, indices, updates = (value.type.shape for value in op.operands)
        steps, own = strides_of(operand), strides_of(updates)
        self._dtype: DType = storage(op.operands[0].type.dtype)
        self._vector_dim = int(a.get("index_vector_dim", 0))
        window_dims = tuple(a.get("update_window_dims", ()))
        inserted, batching = tuple(a.get("inserted_window_dims", ())), tuple(a.get("input_batching_dims", ()))
        kept = [d for d in range(len(operand)) if d not in {*inserted, *batching}]
        sizes = {d: updates[u] for d, u in zip(kept, window_dims, strict=True)}
        self._window = joined(
            [Dim(sizes[d], steps[d]) for d in kept],
            [Dim(sizes[d], own[u]) for d, u in zip(kept, window_dims, strict=True)],
        )
        self._rows = joined([Dim(updates[d], own[d]) for d in range(len(updates)) if d not in window_dims])[0]
        where = tuple(a["scatter_dims_to_operand_dims"])
        counts = [size for d, size in enumerate(indices) if d != self._vector_dim]
        along = [d - (d > self._vector_dim) for d in a.get("scatter_indices_batching_dims", ())]
        base = batch_base(counts, along, [steps[d] for d in batching])
        limits = tuple(operand[d] - sizes.get(d, 1) for d in where)
        self._choice = Choice(tuple(steps[d] for d in where), limits, base, clamped=False)
        self._apart = all(sizes.get(d, 1) == 1 for d in where)
        self._unique = bool(a.get("unique_indices", False))

    def run(self, operand: NkiTensor, starts: NkiTensor, updates: NkiTensor, result: NkiTensor) -> None:
        nisa.dma_copy(dst=result, src=operand)
        indices = Indices(starts, self._op.operands[1], self._vector_dim)
        flat = result.reshape((self._op.operands[0].type.size,))
        sums = self._how.operator == alu.ADD and self._dtype.is_float and self._apart
        together = self._target.partitions
        if self._how.operator is not None and not self._unique and not sums:
            together = 1  # equal or overlapping slices one after the other
        for span in indices.spans(together, False):
            offsets = indices.offsets(span, self._choice)
            if self._how.operator is None:
                self._replace(flat, offsets, updates, span)
                continue
            same = self._same(indices, span, offsets) if sums and not self._unique and span.rows > 1 else None
            for piece in window_parts(self._window, _SLICE_BYTES // float32.itemsize):
                self._combine(flat, offsets, updates, span, piece, same)

    def _updates(self, updates: NkiTensor, step: int, offset: int, there: Sequence[Dim]) -> Rows:
        def rows(start: int, count: int) -> NkiTensor:
            return updates.ap([[step, count], *([d.stride, d.count] for d in there)], offset=offset + start * step)

        return rows

    def _replace(self, flat: NkiTensor, offsets: NkiTensor, updates: NkiTensor, span: IndexBlock) -> None:
        for run in runs(self._rows, span.first, span.rows):
            starts = offsets[run.at : run.at + run.count, :]
            for part in window_parts(self._window):
                rows = self._updates(updates, run.stride, run.offset + part.own, part.there)
                copy_rows(flat, part.offset, part.window, starts, rows, scatter=True, skip=True, target=self._target)

    def _same(self, indices: Indices, span: IndexBlock, offsets: NkiTensor) -> NkiTensor:
        """1 where two updates of a block go to the same slice, so that a product sums them up."""
        across = indices.offsets(span, self._choice, across=True)
        equal = nl.ndarray(across.shape, dtype=int32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=equal, data1=across, data2=spread(offsets, across.shape), op=alu.EQUAL)
        result = nl.ndarray(across.shape, dtype=self._dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=equal)
        return result

    def _combine(
        self,
        flat: NkiTensor,
        offsets: NkiTensor,
        updates: NkiTensor,
        span: IndexBlock,
        piece: WindowPart,
        same: NkiTensor | None,
    ) -> None:
        """Read the slices, combine, write them back; slices that repeat in a block get the same sum each."""
        offset, own, window, there = piece.offset, piece.own, piece.window, piece.there
        shape = (span.rows, prod(dim.count for dim in window))
        added = nl.ndarray(shape, dtype=self._dtype, buffer=nl.sbuf)
        for run in runs(self._rows, span.first, span.rows):
            rows = self._updates(updates, run.stride, run.offset + own, there)
            nisa.dma_copy(dst=added[run.at : run.at + run.count, :], src=rows(0, run.count))
        old = nl.ndarray(shape, dtype=self._dtype, buffer=nl.sbuf)
        nisa.memset(dst=old, value=0)

        def held(tile: NkiTensor) -> Rows:
            return lambda start, count: tile[start : start + count, :]

        copy_rows(flat, offset, window, offsets, held(old), scatter=False, skip=True, target=self._target)
        new = nl.ndarray(shape, dtype=self._dtype, buffer=nl.sbuf)
        for first in range(0, shape[1], nl.tile_size.psum_bank_fmax):
            part = slice(first, min(first + nl.tile_size.psum_bank_fmax, shape[1]))
            more = added[:, part] if same is None else _summed(added[:, part], same)
            self._how.into(new[:, part], old[:, part], more)
        copy_rows(flat, offset, window, offsets, held(new), scatter=True, skip=True, target=self._target)


def _summed(added: NkiTensor, same: NkiTensor) -> NkiTensor:
    """For each row the sum of the rows that go to the same slice, float32.

    Products with 0 and 1 sum up finite numbers only, because 0 times infinity is not 0. Where there are infinities is
    summed up beside them: a sum is infinite if one row is, and NaN if rows are of both signs, or NaN.
    """
    finite = _flags(added, alu.ABS, 0.0, alu.LESS_EQUAL, FP32_MAX, dtype=uint8)
    kept = nl.ndarray(added.shape, dtype=added.dtype, buffer=nl.sbuf)
    nisa.memset(dst=kept, value=0)
    nisa.tensor_copy_predicated(dst=kept, src=added, predicate=finite)
    total = nl.ndarray(added.shape, dtype=float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=total, src=_product(same, kept))
    equal = same
    if same.dtype != bfloat16:
        equal = nl.ndarray(same.shape, dtype=bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=equal, src=same)
    for limit, within in ((FP32_MAX, alu.LESS_EQUAL), (-FP32_MAX, alu.GREATER_EQUAL)):
        beyond = _flags(added, within, limit, alu.EQUAL, 0.0, dtype=bfloat16)  # also where it is NaN
        some = _flags(_product(equal, beyond), alu.GREATER, 0.0, dtype=uint8)
        infinite = nl.ndarray(added.shape, dtype=float32, buffer=nl.sbuf)
        nisa.memset(dst=infinite, value=0.0)
        nisa.tensor_copy_predicated(dst=infinite, src=math.copysign(math.inf, limit), predicate=some)
        nisa.tensor_tensor(dst=total, data1=total, data2=infinite, op=alu.ADD)
    return total


def _flags(
    x: NkiTensor, op0: Operator, first: float, op1: Operator | None = None, second: float = 0.0, *, dtype: DType
) -> NkiTensor:
    """1 where a comparison holds, else 0."""
    result = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=x, op0=op0, operand0=first, op1=op1, operand1=None if op1 is None else second)
    return result


def _product(same: NkiTensor, rows: NkiTensor) -> NkiTensor:
    sums = nl.ndarray(rows.shape, dtype=float32, buffer=nl.psum)
    nisa.nc_matmul(dst=sums, stationary=same, moving=rows, accumulate=False)
    return sums
