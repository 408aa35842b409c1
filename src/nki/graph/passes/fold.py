"""Constant propagation: what depends on constants alone is computed now, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki.graph.ir import Module, Op, Value
from nki.graph.passes.context import Context
from nki.graph.passes.kinds import nbytes
from nki.graph.passes.numpy_ops import Array, compute, is_elementwise
from nki.graph.passes.rewriter import Rewriter, rewrite

_KEPT = frozenset({"iota", "broadcast_in_dim"})
"""Kernels make these themselves, so they are computed only if that makes them smaller or nothing else is left."""


def fold(module: Module, context: Context) -> Module:
    """The model with constants in place of what they determine, as long as those take at most `context.fold_bytes`, or
    no more than what they replace."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        if op.name == "constant" or len(op.results) != 1 or op.regions or op.name in _KEPT:
            return None
        arrays = [_constant(r, value) for value in op.operands]
        if not arrays or any(array is None for array in arrays):
            return None
        found = [array for array in arrays if array is not None]
        result = _splat(op, found) if is_elementwise(op.name) else None
        if result is None:
            largest = max(nbytes(value.type) for value in op.operands)
            if nbytes(op.results[0].type) > max(context.fold_bytes, largest):
                return None
            result = compute(op, found)
        return None if result is None else [r.constant(_as_splat(result))]

    return rewrite(module, rule)


def _constant(r: Rewriter, value: Value) -> Array | None:
    found = r.constant_of(value)
    if found is None:
        op = r.maker(value, "iota") or r.maker(value, "broadcast_in_dim")
        if op is not None and value.type.size <= _SMALL:
            arrays = [_constant(r, operand) for operand in op.operands]
            if all(array is not None for array in arrays):
                return compute(op, [array for array in arrays if array is not None])
    return found


_SMALL = 1 << 12  # elements


def _splat(op: Op, arrays: Sequence[Array]) -> Array | None:
    """Operations on splats: one element is computed."""
    if op.results[0].type.size < 2 or any(
        array.size < 1 or (array.size > 1 and any(array.strides)) for array in arrays
    ):
        return None
    shape = op.results[0].type.shape
    single = [
        array.reshape(-1)[:1] if array.size == 1 else array[(slice(0, 1),) * array.ndim].reshape(1) for array in arrays
    ]
    one = compute(_one(op), single)
    return None if one is None else np.broadcast_to(one.reshape(()), shape)


def _one(op: Op) -> Op:
    kind = type(op.results[0].type)((1,), op.results[0].type.dtype)
    return Op(op.name, op.operands, (Value(kind),), op.attributes)


def _as_splat(array: Array) -> Array:
    """Elements that are all the same bits are one element with strides of 0."""
    if array.size < 2 or not any(array.strides):
        return array
    first = array.reshape(-1)[:1]
    return np.broadcast_to(first.reshape(()), array.shape) if array.tobytes() == first.tobytes() * array.size else array
