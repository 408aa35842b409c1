"""Reductions in the form that the engines do best: sums over outer dimensions as products, long ones in two steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from nki.graph.ir import Module, Op, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.kinds import combiner
from nki.graph.passes.rewriter import Rewriter, rewrite

_SUMMED = frozenset({"float32", "bfloat16", "float16"})
_LONG = 1024
"""Elements from which on a row is worth two kernels' starts."""


def reductions(module: Module, context: GraphContext) -> Module:
    """The model with sums of floats over dimensions before the last one as products with ones, which read whole rows;
    and with long reductions to few elements cut into as many rows as there are partitions."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        name = combiner(op)
        if not name:
            return None
        return _as_product(r, op, name) or _in_two(r, op, name, context.target.pe.rows)

    return rewrite(module, rule)


def _as_product(r: Rewriter, op: Op, name: str) -> Sequence[Value] | None:
    value, start = op.operands
    shape, dims = value.type.shape, sorted(op.attributes["dimensions"])
    if name != "add" or value.type.dtype.name not in _SUMMED or not dims or dims[-1] == len(shape) - 1:
        return None
    first = r.scalar_of(start)
    if first is None or float(first) != 0 or prod(shape[dim] for dim in dims) < 2:
        return None
    end = dims[-1] + 1
    if prod(shape[end:]) < 2:
        return None
    ones = r.full(1, type(value.type)(shape[:end], value.type.dtype))
    batch = tuple(dim for dim in range(end) if dim not in dims)
    attributes = {
        "lhs_batching_dimensions": batch,
        "rhs_batching_dimensions": batch,
        "lhs_contracting_dimensions": tuple(dims),
        "rhs_contracting_dimensions": tuple(dims),
    }
    return r.op("dot_general", [ones, value], [op.results[0].type], attributes)


def _in_two(r: Rewriter, op: Op, name: str, partitions: int) -> Sequence[Value] | None:
    value, start = op.operands
    shape, dims = value.type.shape, sorted(op.attributes["dimensions"])
    rank = len(shape)
    rows, length = prod(op.results[0].type.shape), prod(shape[dim] for dim in dims)
    first = r.scalar_of(start)
    if dims != list(range(rank - len(dims), rank)) or length < _LONG or first is None:
        return None
    parts = gcd(length, partitions)
    if rows * parts > partitions or parts < 2 or (name == "add" and float(first) != 0):
        return None
    kept = op.results[0].type.shape
    wide = r.reshape(value, (*kept, parts, length // parts))
    last = len(kept)
    inner = r.reduce(wide, (last + 1,), name, first)
    return [r.reduce(inner, (last,), name, first)]
