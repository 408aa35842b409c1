"""Kernels for gathers: slices at run-time offsets, moved by transfers that read their rows where indices say."""

from __future__ import annotations

from collections.abc import Callable

from nki.core.nki_tensor import NkiTensor
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
from nki.graph.ir import Group, Op
from nki.target.model import Target


def emit_gather(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a gather of any form; starts outside move inside, as StableHLO says."""
    op = group.ops[-1]

    def gather(*tensors: NkiTensor) -> None:
        known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
        _Gather(op, target).run(known[op.operands[0]], known[op.operands[1]], known[op.results[0]])

    return gather


class _Gather:
    def __init__(self, op: Op, target: Target) -> None:
        self._op, self._target = op, target
        a = op.attributes
        operand, indices, result = (value.type.shape for value in (*op.operands[:2], op.results[0]))
        steps, out = strides_of(operand), strides_of(result)
        self._vector_dim = int(a.get("index_vector_dim", 0))
        sizes, offset_dims = tuple(a["slice_sizes"]), tuple(a["offset_dims"])
        gone = {*a.get("collapsed_slice_dims", ()), *a.get("operand_batching_dims", ())}
        kept = [d for d in range(len(operand)) if d not in gone]
        self._window = joined(
            [Dim(sizes[d], steps[d]) for d in kept],
            [Dim(sizes[d], out[r]) for d, r in zip(kept, offset_dims, strict=True)],
        )
        self._rows = joined([Dim(result[d], out[d]) for d in range(len(result)) if d not in offset_dims])[0]
        where = tuple(a["start_index_map"])
        counts = [size for d, size in enumerate(indices) if d != self._vector_dim]
        along = [d - (d > self._vector_dim) for d in a.get("start_indices_batching_dims", ())]
        base = batch_base(counts, along, [steps[d] for d in a.get("operand_batching_dims", ())])
        self._choice = Choice(
            tuple(steps[d] for d in where), tuple(operand[d] - sizes[d] for d in where), base, clamped=True
        )

    def run(self, operand: NkiTensor, starts: NkiTensor, result: NkiTensor) -> None:
        indices = Indices(starts, self._op.operands[1], self._vector_dim)
        flat = operand.reshape((self._op.operands[0].type.size,))
        for span in indices.spans(self._target.partitions, len(self._rows) == 1):
            offsets = indices.offsets(span, self._choice)
            for column in range(span.columns):
                self._column(flat, offsets[:, column : column + 1], result, span, column)

    def _column(self, flat: NkiTensor, starts: NkiTensor, result: NkiTensor, span: IndexBlock, column: int) -> None:
        if span.columns > 1:
            step = span.columns * self._rows[0].stride
            pieces = [(0, span.rows, step, (span.first + column) * self._rows[0].stride)]
        else:
            pieces = [(run.at, run.count, run.stride, run.offset) for run in runs(self._rows, span.first, span.rows)]
        for at, count, step, offset in pieces:
            here = starts[at : at + count, :]
            for part in window_parts(self._window):
                rows = _rows(result, part, step, offset)
                copy_rows(flat, part.offset, part.window, here, rows, scatter=False, skip=False, target=self._target)


def _rows(result: NkiTensor, part: WindowPart, step: int, offset: int) -> Rows:
    """Part of the slices in the result, which are `step` apart there."""

    def rows(start: int, number: int) -> NkiTensor:
        pattern = [[step, number], *([dim.stride, dim.count] for dim in part.there)]
        return result.ap(pattern, offset=offset + part.own + start * step)

    return rows
