"""What recognises parts of a model: helpers for matchers, and the matcher of RMS norms."""

from __future__ import annotations

import numpy as np

from nki.core.dtypes import DType
from nki.graph.ir import Op, Value
from nki.graph.passes.kinds import combiner
from nki.graph.passes.lossless import computed_alike
from nki.graph.passes.rewriter import Rewriter
from nki.graph.patterns.pattern import Match


def either_way(r: Rewriter, op: Op, name: str) -> list[tuple[Op, Value]]:
    """Operands of a commutative operation that are made by another one, each with the operand beside it."""
    pairs = ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0]))
    return [(maker, other) for value, other in pairs if (maker := r.maker(value, name)) is not None]


def unconverted(r: Rewriter, value: Value) -> Value:
    """The value before conversions to a wider float type, or from float32 to bfloat16 or float16."""
    while (op := r.maker(value, "convert")) is not None and _is_unrounded(op):
        value = op.operands[0]
    return value


def _is_unrounded(convert: Op) -> bool:
    source = convert.operands[0].type.dtype
    return source.is_float and computed_alike(source, convert.results[0].type.dtype)


def match_rms_norm(r: Rewriter, op: Op) -> Match | None:
    """``x * rsqrt(mean(x * x, -1) + epsilon) * weight`` over the last dimension.

    Inputs x and weight; facts ``epsilon``.
    """
    if op.name != "multiply":
        return None
    last = len(op.results[0].type.shape) - 1
    for weight, normal in either_way(r, op, "broadcast_in_dim"):
        inner = r.maker(unconverted(r, normal), "multiply")
        if inner is None or tuple(weight.attributes["broadcast_dimensions"]) != (last,):
            continue
        for scale, wide in either_way(r, inner, "broadcast_in_dim"):
            row = _row(r, scale)
            root = None if row is None else r.maker(row, "rsqrt")
            epsilon = None if root is None else _mean_square(r, root.operands[0], wide)
            x = _narrow(r, wide, op.results[0].type.dtype)
            if epsilon is not None and x.type.dtype is op.results[0].type.dtype:
                return Match((x, weight.operands[0]), op.results, {"epsilon": epsilon})
    return None


def _row(r: Rewriter, wide: Op) -> Value | None:
    """What a broadcast repeats along its last dimension, also if dimensions of size 1 were dropped before."""
    shape, places = wide.results[0].type.shape, tuple(wide.attributes["broadcast_dimensions"])
    value, last = wide.operands[0], len(shape) - 1
    if places == tuple(range(last)) and value.type.shape == shape[:last]:
        return value
    reshape = r.maker(value, "reshape")
    dropped = [size for place, size in enumerate(shape[:last]) if place not in places]
    if reshape is None or places != tuple(sorted(places)) or last in places or any(size != 1 for size in dropped):
        return None
    source = reshape.operands[0]
    same = value.type.shape == tuple(shape[place] for place in places)
    return source if same and source.type.shape == shape[:last] else None


def _mean_square(r: Rewriter, value: Value, x: Value) -> float | None:
    """The number that is added to the mean of squares over the last dimension, if the value is that."""
    total = r.maker(value, "add")
    if total is None:
        return None
    for mean, number in ((total.operands[0], total.operands[1]), (total.operands[1], total.operands[0])):
        epsilon, scaled = r.scalar_of(number), r.maker(mean)
        if epsilon is None or scaled is None or scaled.name not in ("multiply", "divide"):
            continue
        count, factor = x.type.shape[-1], r.scalar_of(scaled.operands[1])
        wanted = count if scaled.name == "divide" else 1 / count
        reduce, last = r.maker(scaled.operands[0], "reduce"), (len(x.type.shape) - 1,)
        if factor is None or not np.isclose(float(factor), wanted, rtol=1e-6) or reduce is None:
            continue
        if combiner(reduce) == "add" and tuple(reduce.attributes["dimensions"]) == last:
            return float(epsilon) if _is_square(r, reduce.operands[0], x) else None
    return None


def _is_square(r: Rewriter, value: Value, x: Value) -> bool:
    """Whether a value is ``x * x``; both may have been made in another shape."""
    square, moved, same = r.maker(value), r.maker(x, "reshape"), x
    if square is not None and square.name == "reshape" and moved is not None:
        square, same = r.maker(square.operands[0]), moved.operands[0]
    return square is not None and square.name == "multiply" and square.operands == (same, same)


def _narrow(r: Rewriter, wide: Value, dtype: DType) -> Value:
    """A value before conversions, as it had a dtype for the last time, also if it was converted in another shape."""
    moved = r.maker(wide, "reshape")
    inner = wide if moved is None else moved.operands[0]
    while inner.type.dtype is not dtype and (op := r.maker(inner, "convert")) is not None and _is_unrounded(op):
        inner = op.operands[0]
    if inner is wide or inner.type.dtype is not dtype:
        return unconverted(r, wide)
    return r.reshape(inner, wide.type.shape)
