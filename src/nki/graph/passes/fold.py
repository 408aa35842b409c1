"""Constant propagation: what depends on constants alone is computed now, in NumPy."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from math import prod

import numpy as np

from nki.core.dtypes import DType
from nki.graph.ir import Module, Op, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.kinds import nbytes
from nki.graph.passes.numpy_ops import Array, compute, is_elementwise
from nki.graph.passes.rewriter import Rewriter, rewrite

_KEPT = frozenset({"iota", "broadcast_in_dim"})
"""Kernels make these themselves, so they are computed only if that makes them smaller or nothing else is left."""

_SMALL, _LARGE = 1 << 12, 1 << 24  # elements


def fold(module: Module, context: GraphContext) -> Module:
    """The model with constants in place of what they determine, as long as those take at most `context.fold_bytes`, or
    no more than what they replace."""

    return rewrite(module, partial(_folded, context))


def fold_wide(module: Module, context: GraphContext, wide: Container[DType]) -> Module:
    """`fold` for operations on integers of these types and reductions of them, before they lose bits."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        if not any(value.type.dtype in wide for value in (*op.operands, *op.results)):
            return None
        if op.name in ("reduce", "reduce_window"):
            return _reduced(r, op)
        return _folded(context, r, op) or _beyond(r, op)

    return rewrite(module, rule)


def _beyond(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """A tensor that is too large to be folded, if there are numbers in it that do not fit 32 bits."""
    if not is_elementwise(op.name) or op.results[0].type.size > _LARGE or not op.results[0].type.dtype.is_integer:
        return None
    arrays = [_constant(r, value, _LARGE) for value in op.operands]
    if any(array is None for array in arrays):
        return None
    made = compute(op, [array for array in arrays if array is not None])
    if made is None or not made.size or (made.min() >= -(1 << 31) and made.max() < 1 << 31):
        return None
    return [r.constant(made)]


def _folded(context: GraphContext, r: Rewriter, op: Op) -> Sequence[Value] | None:
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


_REDUCERS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def _reduced(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Sums and the like of constants, over dimensions or windows."""
    body = [inner.name for inner in op.regions[0].ops if isinstance(inner, Op)]
    if len(op.operands) != 2 or len(body) != 1 or body[0] not in _REDUCERS:
        return None
    x, start = (_constant(r, value) for value in op.operands)
    if x is None or start is None or x.size > _SMALL:
        return None
    reducer = _REDUCERS[body[0]]
    windows = x if op.name == "reduce" else _windows(op, x, start)
    if windows is None:
        return None
    over = op.attributes["dimensions"] if op.name == "reduce" else range(x.ndim, 2 * x.ndim)
    made = reducer.reduce(windows, axis=tuple(over), dtype=x.dtype, initial=start.reshape(-1)[0])
    return [r.constant(_as_splat(np.asarray(made)))] if made.shape == op.results[0].type.shape else None


def _windows(op: Op, x: Array, start: Array) -> Array | None:
    """All elements of each window, as further dimensions."""
    a, ones = op.attributes, (1,) * x.ndim
    sizes = tuple(a["window_dimensions"])
    spread = (a.get("base_dilations", ones), a.get("window_dilations", ones))
    if any(step != 1 for steps in spread for step in steps) or prod(sizes) * x.size > _SMALL * _SMALL:
        return None
    padding = [tuple(pair) for pair in a.get("padding", ((0, 0),) * x.ndim)]
    if any(size < 0 for pair in padding for size in pair):
        return None
    whole = np.pad(x, padding, constant_values=start.reshape(-1)[0])
    strides = tuple(slice(None, None, step) for step in a.get("window_strides", ones))
    return np.lib.stride_tricks.sliding_window_view(whole, sizes)[strides]


def _constant(r: Rewriter, value: Value, most: int = _SMALL) -> Array | None:
    found = r.constant_of(value)
    if found is None:
        op = r.maker(value, "iota") or r.maker(value, "broadcast_in_dim")
        if op is not None and value.type.size <= most:
            arrays = [_constant(r, operand, most) for operand in op.operands]
            if all(array is not None for array in arrays):
                return compute(op, [array for array in arrays if array is not None])
    return found


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
