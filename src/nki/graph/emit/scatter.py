"""Kernels for scatters: slices at run-time offsets are replaced or combined with, also where indices repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, float32, int32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.combine import Combination, combination, spread
from nki.graph.emit.engines import storage
from nki.graph.emit.offsets import Choice, Indices, Rows, Span, batch_base, copy_rows
from nki.graph.emit.panels import Dim, joined, runs, strides_of
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op
from nki.isa import alu
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
            for offset, own, window, there in self._pieces():
                self._combine(flat, offsets, updates, span, (offset, own, window, there), same)

    def _updates(self, updates: NkiTensor, step: int, offset: int, there: Sequence[Dim]) -> Rows:
        def rows(start: int, count: int) -> NkiTensor:
            return updates.ap([[step, count], *([d.stride, d.count] for d in there)], offset=offset + start * step)

        return rows

    def _replace(self, flat: NkiTensor, offsets: NkiTensor, updates: NkiTensor, span: Span) -> None:
        window, there = self._window
        for run in runs(self._rows, span.first, span.rows):
            rows = self._updates(updates, run.stride, run.offset, there)
            starts = offsets[run.at : run.at + run.count, :]
            copy_rows(flat, 0, window, starts, rows, scatter=True, skip=True, target=self._target)

    def _pieces(self) -> Iterator[tuple[int, int, tuple[Dim, ...], tuple[Dim, ...]]]:
        """Parts of a slice that fit into a partition: offsets and dimensions, in the operand and in the updates."""
        most = max(1, _SLICE_BYTES // float32.itemsize)
        window, there = self._window

        def split(
            at: int, own: int, dims: tuple[Dim, ...], theirs: tuple[Dim, ...]
        ) -> Iterator[tuple[int, int, tuple[Dim, ...], tuple[Dim, ...]]]:
            inner = prod(dim.count for dim in dims[1:])
            if prod(dim.count for dim in dims) <= most:
                yield at, own, dims, theirs
                return
            step = max(1, most // inner)
            for first in range(0, dims[0].count, step):
                count = min(step, dims[0].count - first)
                moved = at + first * dims[0].stride, own + first * theirs[0].stride
                if count == 1 and len(dims) > 1:
                    yield from split(*moved, dims[1:], theirs[1:])
                else:
                    yield (*moved, (Dim(count, dims[0].stride), *dims[1:]), (Dim(count, theirs[0].stride), *theirs[1:]))

        return split(0, 0, window, there)

    def _same(self, indices: Indices, span: Span, offsets: NkiTensor) -> NkiTensor:
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
        span: Span,
        piece: tuple[int, int, tuple[Dim, ...], tuple[Dim, ...]],
        same: NkiTensor | None,
    ) -> None:
        """Read the slices, combine, write them back; slices that repeat in a block get the same sum each."""
        offset, own, window, there = piece
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
            more = added[:, part]
            if same is not None:
                more = nl.ndarray((shape[0], part.stop - first), dtype=float32, buffer=nl.psum)
                nisa.nc_matmul(dst=more, stationary=same, moving=added[:, part], accumulate=False)
            self._how.into(new[:, part], old[:, part], more)
        copy_rows(flat, offset, window, offsets, held(new), scatter=True, skip=True, target=self._target)
