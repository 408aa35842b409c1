"""Dimensions of size 1 stay where a value has them first, so that fusion sees which rows reduced values belong to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from nki.graph.ir import Module, Op, TensorType, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.rewriter import Rewriter, rewrite


def widen(module: Module, context: GraphContext) -> Module:
    """The model with broadcasts and reduces of what a reshape gave other dimensions of size 1 as of its operand."""
    return rewrite(module, _rule)


def _rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
    if op.name == "reduce" and len(op.results) == 1:
        return _reduced_first(r, op)
    if op.name != "broadcast_in_dim":
        return None
    reshape = r.maker(op.operands[0], "reshape")
    if reshape is None:
        return None
    value, shape = reshape.operands[0], op.results[0].type.shape
    dims = _dims(op, value.type.shape, shape)
    return None if dims is None else [r.broadcast(value, shape, dims)]


def _reduced_first(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """A reduce of what a reshape moved dimensions of size 1 in as one of what it was before."""
    reshape = r.maker(op.operands[0], "reshape")
    if reshape is None:
        return None
    value, shape = reshape.operands[0], op.operands[0].type.shape
    there = [dim for dim, size in enumerate(shape) if size != 1]
    here = [dim for dim, size in enumerate(value.type.shape) if size != 1]
    if [shape[dim] for dim in there] != [value.type.shape[dim] for dim in here]:
        return None
    if not set(op.attributes["dimensions"]) <= set(there):
        return None
    dims = tuple(here[there.index(dim)] for dim in op.attributes["dimensions"])
    kept = tuple(size for dim, size in enumerate(value.type.shape) if dim not in dims)
    kind = op.results[0].type
    attributes = {**op.attributes, "dimensions": dims}
    made = r.op("reduce", [value, op.operands[1]], [TensorType(kept, kind.dtype)], attributes, op.regions)
    return [r.reshape(made[0], kind.shape)]


def _dims(op: Op, source: Sequence[int], result: Sequence[int]) -> tuple[int, ...] | None:
    """Where the dimensions of the value before the reshape go, if those of size 1 have places in between."""
    narrow = op.operands[0].type.shape
    there = [dim for dim, size in zip(op.attributes["broadcast_dimensions"], narrow, strict=True) if size != 1]
    if [size for size in source if size != 1] != [size for size in narrow if size != 1]:
        return None
    if len(source) > len(result):
        return None
    dims: list[int] = []
    wide = iter(there)
    for size in source:
        dims.append(dims[-1] + 1 if size == 1 and dims else 0 if size == 1 else next(wide))
    increasing = all(one < two for one, two in pairwise(dims))
    return tuple(dims) if increasing and dims[-1:] < [len(result)] else None
