"""Products of integers that the Tensor engine does not sum up exactly, as elementwise products and sums of words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from nki.core.dtypes import DType, int32, uint32
from nki.graph.emit.kit.conv_shape import ConvShape, conv_shape
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.rewriter import Rewriter

_EXACT_BITS = 24
_SHORT = 1  # byte: such integers are exact in bfloat16
_MOST_PRODUCTS = 1 << 26


def dot_general(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Products of bytes become words and are cut off then; other integers are multiplied element by element."""
    a, b = op.operands
    result = op.results[0].type
    if not result.dtype.is_integer or not (a.type.dtype.is_integer and b.type.dtype.is_integer):
        return None
    contracted = op.attributes["lhs_contracting_dimensions"]
    terms = prod(a.type.shape[d] for d in contracted)
    word = int32 if result.dtype.signed else uint32
    if _is_exact(a.type.dtype, b.type.dtype, terms):
        if result.dtype in (int32, uint32):
            return None
        (made,) = r.op(op.name, [a, b], [TensorType(result.shape, word)], op.attributes)
        return [r.convert(made, result.dtype)]
    if result.size * terms > _MOST_PRODUCTS:
        return None
    return [r.convert(_summed(r, op, word, terms), result.dtype)]


def _is_exact(a: DType, b: DType, terms: int) -> bool:
    """Whether float32 holds every sum."""
    return a.itemsize == b.itemsize == _SHORT and terms << 8 * (a.itemsize + b.itemsize) <= 1 << _EXACT_BITS


def _summed(r: Rewriter, op: Op, word: DType, terms: int) -> Value:
    """The products of all pairs, and their sums over the contracted dimensions, modulo 2**32."""
    sides = []
    for value, name in zip(op.operands, ("lhs", "rhs"), strict=True):
        batch = op.attributes[f"{name}_batching_dimensions"]
        contracted = op.attributes[f"{name}_contracting_dimensions"]
        free = [d for d in range(len(value.type.shape)) if d not in (*batch, *contracted)]
        shape = value.type.shape
        moved = r.transpose(r.convert(value, word), [*batch, *free, *contracted])
        sides.append(r.reshape(moved, (prod(shape[d] for d in batch), prod(shape[d] for d in free), terms)))
    count, rows, columns = sides[0].type.shape[0], sides[0].type.shape[1], sides[1].type.shape[1]
    wide = (count, rows, columns, terms)
    left, right = r.broadcast(sides[0], wide, (0, 1, 3)), r.broadcast(sides[1], wide, (0, 2, 3))
    return r.reshape(r.reduce(r.same("multiply", left, right), (3,), "add", 0), op.results[0].type.shape)


def convolution(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Convolutions of integers: of bytes in words; of others tap by tap, each a product."""
    a, b = op.operands
    result = op.results[0].type
    if not result.dtype.is_integer or not (a.type.dtype.is_integer and b.type.dtype.is_integer):
        return None
    shape = conv_shape(op)
    word = int32 if result.dtype.signed else uint32
    if _is_exact(a.type.dtype, b.type.dtype, shape.features * shape.taps):
        if result.dtype in (int32, uint32):
            return None
        (made,) = r.op(op.name, [a, b], [TensorType(result.shape, word)], op.attributes)
        return [r.convert(made, result.dtype)]
    if shape.taps > _MOST_TAPS:
        return None
    return [r.convert(_by_taps(r, op, shape, word), result.dtype)]


_MOST_TAPS = 128


def _by_taps(r: Rewriter, op: Op, shape: ConvShape, word: DType) -> Value:
    """The sum over taps of products (groups, batch, places, features out)."""
    groups, outs = len(shape.shares), [window.out for window in shape.windows]
    image, kernel = _images(r, op, shape, word), _kernels(r, op, shape, word)
    total: Value | None = None
    for taps in product(*(range(window.taps) for window in shape.windows)):
        starts = [window.at(tap) for window, tap in zip(shape.windows, taps, strict=True)]
        seen = _cut(r, image, starts, outs, [window.stride for window in shape.windows])
        weights = _cut(r, kernel, taps, [1] * len(outs), [1] * len(outs))
        weights = r.reshape(weights, weights.type.shape[:3])
        attributes = {
            "lhs_batching_dimensions": (0,),
            "rhs_batching_dimensions": (0,),
            "lhs_contracting_dimensions": (2,),
            "rhs_contracting_dimensions": (2,),
        }
        kind = TensorType((groups, shape.batch, *outs, shape.outs), word)
        (made,) = r.op("dot_general", [seen, weights], [kind], attributes)
        total = made if total is None else r.same("add", total, made)
    assert total is not None, "a window has taps"
    rank = len(outs)
    apart = r.transpose(total, [1, *range(2, rank + 2), 0, rank + 2])  # batch, places, groups, features
    together = r.reshape(apart, (shape.batch, *outs, groups * shape.outs))
    side, order = shape.output, [0] * (rank + 2)
    order[side.first], order[side.second] = 0, rank + 1
    for position, dim in enumerate(side.spatial):
        order[dim] = position + 1
    return r.transpose(together, order)


def _images(r: Rewriter, op: Op, shape: ConvShape, word: DType) -> Value:
    """(groups, batch, features, padded places)."""
    side, groups, x = shape.input, len(shape.shares), op.operands[0]
    moved = r.transpose(r.convert(x, word), [side.first, side.second, *side.spatial])
    low, high = (0, 0, *(w.low for w in shape.windows)), (0, 0, *(w.high for w in shape.windows))
    inner = (0, 0, *(w.spread - 1 for w in shape.windows))
    sizes = tuple(
        n + max(n - 1, 0) * gap + a + b for n, gap, a, b in zip(moved.type.shape, inner, low, high, strict=True)
    )
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    zero = r.full(0, TensorType((), word))
    (padded,) = r.op("pad", [moved, zero], [TensorType(sizes, word)], attributes)
    if shape.by_feature:
        apart = r.reshape(padded, (shape.batch, groups, shape.features, *sizes[2:]))
        return r.transpose(apart, [1, 0, 2, *range(3, len(sizes) + 1)])
    return r.reshape(padded, (groups, shape.batch, shape.features, *sizes[2:]))


def _kernels(r: Rewriter, op: Op, shape: ConvShape, word: DType) -> Value:
    """(groups, features out, features in, taps)."""
    side, w = shape.kernel, op.operands[1]
    moved = r.transpose(r.convert(w, word), [side.second, side.first, *side.spatial])
    return r.reshape(moved, (len(shape.shares), shape.outs, shape.features, *moved.type.shape[2:]))


def _cut(r: Rewriter, x: Value, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Value:
    """A slice of the places."""
    kept = x.type.shape[:3]
    first = (0, 0, 0, *starts)
    limits = (*kept, *(a + (n - 1) * step + 1 for a, n, step in zip(starts, sizes, steps, strict=True)))
    kind = TensorType((*kept, *sizes), x.type.dtype)
    return r.one("slice", [x], kind, start_indices=first, limit_indices=limits, strides=(1, 1, 1, *steps))
