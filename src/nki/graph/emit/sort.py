"""Kernels for sorts: rows on partitions, in a network of exchanges; any number of operands and any comparator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.engines import EngineOps, Splat, storage
from nki.graph.emit.kit.expressions import apply
from nki.graph.emit.kit.network import sort_rows
from nki.graph.emit.kit.panels import Chunks, Dim, Loader, OperandBlock, ProductOperand, joined, store, strides_of
from nki.graph.emit.topk import TopK
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value
from nki.target.model import Target

_ROW_BYTES = 150 << 10
"""Bytes of a partition for all operands of a row, with what an exchange needs besides."""


def emit_sort(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a sort, or of a top_k of CHLO.

    Raises:
        GraphError: rows that do not fit into a partition (``graph.unsupported``).
    """
    op = group.ops[-1]
    if op.name != "sort":
        largest = TopK(op, target)

        def top(*tensors: NkiTensor) -> None:
            known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
            largest.run(known[op.operands[0]], [known.get(value) for value in op.results])

        return top
    sorting = Sort(op, target)

    def sort(*tensors: NkiTensor) -> None:
        known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
        sorting.run([known[value] for value in op.operands], [known.get(value) for value in op.results])

    return sort


def rows_of(tensor: NkiTensor, value: Value, dim: int) -> ProductOperand:
    """One dimension as the free one, all others over the partitions."""
    shape, steps = value.type.shape, strides_of(value.type.shape)
    rest = joined([Dim(shape[d], steps[d]) for d in range(len(shape)) if d != dim])[0]
    return ProductOperand(tensor, (Dim(1, 1),), (Dim(shape[dim], steps[dim]),), rest)


class Sort:
    """A sort of all operands along one dimension."""

    def __init__(self, op: Op, target: Target) -> None:
        self._op, self._target = op, target
        shape = op.operands[0].type.shape
        self._dim = int(op.attributes.get("dimension", -1)) % len(shape)
        self._length = shape[self._dim]
        self._size = 1 << max(1, (self._length - 1).bit_length())
        self._stable = bool(op.attributes.get("is_stable", False))
        per_element = sum(2 * storage(value.type.dtype).itemsize for value in op.operands) + 16
        if self._size * per_element > _ROW_BYTES:
            raise unsupported(
                op,
                f"a row of {self._length} elements does not fit into a partition with all that its sort needs",
                "sort shorter rows, or take the largest elements with top_k",
            )

    def run(self, sources: Sequence[NkiTensor], results: Sequence[NkiTensor | None]) -> None:
        """As many rows as there are partitions at a time."""
        rows = prod(self._op.operands[0].type.shape) // self._length
        chunks = Chunks(rows, min(rows, self._target.partitions), True)
        engines = EngineOps(self._target)
        for piece in range(chunks.count):
            tiles = [self._loaded(t, v, chunks, piece) for t, v in zip(sources, self._op.operands, strict=True)]
            sort_rows(tiles, self._length, lambda a, b: self._before(engines, a, b), self._stable)
            for tile, result, value in zip(tiles, results, self._op.results, strict=True):
                if result is not None:
                    store(rows_of(result, value, self._dim), chunks, piece, 0, tile[:, 0 : self._length])

    def _loaded(self, tensor: NkiTensor, value: Value, chunks: Chunks, piece: int) -> NkiTensor:
        operand, dtype = rows_of(tensor, value, self._dim), storage(value.type.dtype)
        whole = len(operand.contracted) == 1
        loader = Loader(operand, Chunks(chunks.total, chunks.size, whole), dtype, self._target)
        tile = loader.load(OperandBlock(0, 1, 0, self._length, piece, 1)).reshape((chunks.size, self._length))
        rows = chunks.rows(piece)
        result = nl.ndarray((rows, self._size), dtype=dtype, buffer=nl.sbuf)
        if self._size > self._length:
            nisa.memset(dst=result[:, self._length :], value=0)
        nisa.tensor_copy(dst=result[:, 0 : self._length], src=tile[0:rows, :])
        return result

    def _before(self, engines: EngineOps, first: Sequence[NkiTensor], second: Sequence[NkiTensor]) -> NkiTensor:
        """The comparator of the model, on all pairs at once."""
        region = self._op.regions[0]
        pairs = [tile for both in zip(first, second, strict=True) for tile in both]
        values = dict(zip(region.arguments, pairs, strict=True))
        ops = [op for op in region.ops if isinstance(op, Op)]
        (result,) = region.results
        found = apply(ops, values, engines=engines, keep=(result,))[result]
        if isinstance(found, Splat):
            return engines.filled(found.value, storage(result.type.dtype), first[0].shape)
        return found
