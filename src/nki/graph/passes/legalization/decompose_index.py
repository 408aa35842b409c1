"""Gathers and scatters that no kernel does as they are."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.dtypes import int32, uint32
from nki.graph.ir import Op, Region, TensorType, Value
from nki.graph.passes.regions import operator, taken_apart
from nki.graph.passes.rewriter import Rewriter


def signed_indices(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Operations whose indices are unsigned 32-bit words on signed ones, in which kernels compute addresses; what is
    beyond them is outside of every tensor, and stays there."""
    first = {"gather": 1, "scatter": len(op.results), "dynamic_slice": 1, "dynamic_update_slice": 2}.get(op.name)
    if first is None or len(op.operands) <= first or op.operands[first].type.dtype is not uint32:
        return None
    last = len(op.operands) if op.name.startswith("dynamic") else first + 1
    turned = [
        r.convert(r.same("minimum", value, r.full(int32.max, value.type)), int32) for value in op.operands[first:last]
    ]
    operands = [*op.operands[:first], *turned, *op.operands[last:]]
    return r.op(op.name, operands, [value.type for value in op.results], op.attributes, op.regions)


def torch_index_select(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Rows by number, as a gather; numbers outside choose the nearest row."""
    x, indices = op.operands
    dim, batch = int(op.attributes["dim"]), int(op.attributes.get("batch_dims", 0))
    rank, count = len(x.type.shape), len(indices.type.shape)
    sizes = tuple(1 if d == dim or d < batch else size for d, size in enumerate(x.type.shape))
    result = op.results[0].type
    offsets = [d for d in range(len(result.shape)) if d >= batch and not dim <= d < dim + count - batch]
    attributes = {
        "offset_dims": tuple(offsets),
        "collapsed_slice_dims": (dim,),
        "operand_batching_dims": tuple(range(batch)),
        "start_indices_batching_dims": tuple(range(batch)),
        "start_index_map": (dim,),
        "index_vector_dim": count,
        "slice_sizes": sizes,
        "indices_are_sorted": False,
    }
    assert len(offsets) == rank - batch - 1, "all dimensions but the chosen one stay"
    return r.op("gather", [x, indices], [result], attributes)


def scatter(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Operands one by one where they are independent; differences as sums; sums of short integers in 32 bits."""
    count, region = len(op.results), op.regions[0]
    if count > 1:
        each = taken_apart(region, count)
        if each is None:
            return None
        indices, updates = op.operands[count], op.operands[count + 1 :]
        parts = zip(op.operands[:count], updates, op.results, each, strict=True)
        return [r.op(op.name, [a, indices, b], [y.type], op.attributes, [inner])[0] for a, b, y, inner in parts]
    return _scatter_one(r, op, region)


def _scatter_one(r: Rewriter, op: Op, region: Region) -> Sequence[Value] | None:
    x, indices, updates = op.operands
    name, kind = operator(region), x.type
    if name == "subtract" and isinstance(region.ops[0], Op) and region.ops[0].operands == region.arguments:
        turned = r.same("negate", updates)
        return r.op(op.name, [x, indices, turned], [kind], op.attributes, [_region("add", TensorType((), kind.dtype))])
    short = kind.dtype.is_integer and kind.dtype not in (int32, uint32) and kind.dtype.kind != "bool"
    if not short or name not in ("add", "multiply"):
        return None
    wide = int32 if kind.dtype.signed else uint32
    inputs = [r.convert(x, wide), indices, r.convert(updates, wide)]
    made = r.op(op.name, inputs, [TensorType(kind.shape, wide)], op.attributes, [_region(name, TensorType((), wide))])
    return [r.convert(made[0], kind.dtype)]


def _region(name: str, scalar: TensorType) -> Region:
    a, b, c = Value(scalar), Value(scalar), Value(scalar)
    return Region((a, b), [Op(name, (a, b), (c,))], (c,))
