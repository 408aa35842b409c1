"""Collectives as the device has them: along the first dimension, and reductions by sums, minima and maxima alone.

Meanings are those of StableHLO's specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki.core.dtypes import bool_, int32, uint32
from nki.graph.copies import copy_region
from nki.graph.errors import unsupported
from nki.graph.ir import Op, Region, TensorType, Value
from nki.graph.passes.regions import is_plain, on_tensors, operator
from nki.graph.passes.rewriter import Rewriter
from nki.graph.replica_groups import groups_of

_REDUCED = ("add", "minimum", "maximum")
_NUMBERS = ("partition_id", "replica_id")
_WIDENED = {"and": "minimum", "or": "maximum"}


def all_reduce(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """One tensor at a time; truth values and short integers in 32 bits; other reductions on all values gathered."""
    region = op.regions[0]
    if len(op.operands) > 1:
        return [_again(r, op, value, kind.type, copy_region(region, {})) for value, kind in _pairs(op)]
    groups, (value,) = groups_of(op), op.operands
    if len(groups[0]) == 1:
        return [value]
    name, dtype = operator(region), value.type.dtype
    if name in _WIDENED and dtype is bool_:
        wide = r.convert(value, int32)
        return [r.convert(_again(r, op, wide, wide.type, _region(_WIDENED[name], int32)), dtype)]
    short = dtype.is_integer and dtype not in (int32, uint32)
    if name in _REDUCED and short:
        wide = r.convert(value, int32 if dtype.signed else uint32)
        return [r.convert(_again(r, op, wide, wide.type, _region(name, wide.type.dtype)), dtype)]
    if name in _REDUCED:
        return None if value.type.shape else [r.reshape(_again(r, op, r.reshape(value, (1,)), None, region), ())]
    return [_combined(r, op, _gathered(r, op, value, len(groups[0])), region)]


def reduce_scatter(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Parts along the first dimension; what an all-reduce has to do in another way is one, and a part of it."""
    groups, (value,), dim = groups_of(op), op.operands, int(op.attributes["scatter_dimension"])
    count = len(groups[0])
    if count == 1:
        return [value]
    name, dtype, shape = operator(op.regions[0]), value.type.dtype, value.type.shape
    direct = name in _REDUCED and not (dtype.is_integer and dtype not in (int32, uint32))
    if direct and dim == 0:
        return None
    parts = _split(r, value, dim, count)  # (count, ...)
    if direct:
        first = r.reshape(parts, (count * parts.type.shape[1], *parts.type.shape[2:]))
        kind = TensorType(parts.type.shape[1:], dtype)
        return [r.op(op.name, [first], [kind], {**op.attributes, "scatter_dimension": 0}, op.regions)[0]]
    sent = r.op("all_to_all", [parts], [parts.type], _exchange(op, count))[0]
    assert shape[dim] % count == 0, "StableHLO's verifier has seen to that"
    return [_combined(r, op, sent, op.regions[0])]


def all_gather(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Tensors one behind the other along a new first dimension, which then goes where it belongs."""
    dim = int(op.attributes["all_gather_dim"])
    if len(op.operands) > 1:
        return [_again(r, op, value, kind.type, None) for value, kind in _pairs(op)]
    groups, (value,) = groups_of(op), op.operands
    if len(groups[0]) == 1:
        return [value]
    if dim == 0:
        return None
    return [_merged(r, _gathered(r, op, value, len(groups[0])), dim)]


def all_to_all(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Parts are split off along a new first dimension, exchanged, and put where they belong."""
    if len(op.operands) > 1:
        return [_again(r, op, value, kind.type, None) for value, kind in _pairs(op)]
    groups, (value,) = groups_of(op), op.operands
    count, split, concat = len(groups[0]), int(op.attributes["split_dimension"]), int(op.attributes["concat_dimension"])
    if count == 1:
        return [value]
    if split == concat == 0:
        return None
    parts = _split(r, value, split, count)
    sent = r.op(op.name, [parts], [parts.type], _exchange(op, count))[0]
    return [_merged(r, sent, concat)]


def collective_broadcast(r: Rewriter, op: Op) -> Sequence[Value]:
    """The first of the values of all ranks."""
    (value,), count = op.operands, len(groups_of(op)[0])
    if count == 1:
        return [value]
    every = _gathered(r, op, value, count)
    return [_part(r, every, 0, value.type)]


def dynamic_slice(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """A reduce-scatter where each rank takes its part of a sum by its number, as XLA's partitioner writes it."""
    whole, result = op.operands[0], op.results[0].type
    reduced = r.maker(whole, "all_reduce")
    cut = [d for d, (a, b) in enumerate(zip(whole.type.shape, result.shape, strict=True)) if a != b]
    if reduced is None or r.uses.get(whole) != 1 or len(cut) != 1:
        return None
    (dim,), groups, table = cut, groups_of(reduced), _by_rank(r, op.operands[1 + cut[0]])
    size, count = result.shape[dim], len(groups[0])
    if table is None or whole.type.shape[dim] != size * count or max(map(max, groups)) >= len(table):
        return None
    if any(table[rank] != place * size for ranks in groups for place, rank in enumerate(ranks)):
        return None
    attributes = {**_groups(reduced), "scatter_dimension": dim}
    return r.op("reduce_scatter", reduced.operands, [result], attributes, [copy_region(reduced.regions[0], {})])


def _by_rank(r: Rewriter, index: Value) -> np.ndarray | None:
    """What an index is on each rank, if it is looked up by the number of the rank."""
    found = r.maker(_unchanged(r, index), "dynamic_slice")
    if found is None or len(found.operands[0].type.shape) != 1:
        return None
    rank = r.maker(_unchanged(r, found.operands[1]))
    return r.constant_of(found.operands[0]) if rank is not None and rank.name in _NUMBERS else None


def _unchanged(r: Rewriter, value: Value) -> Value:
    """What a number was before it was reshaped, converted, or kept below what a signed index can be."""
    while (maker := r.maker(value)) is not None:
        words = {each.type.dtype for each in (*maker.operands, *maker.results)} <= {int32, uint32}
        below = maker.name == "minimum" and r.scalar_of(maker.operands[1]) == int32.max
        if not words or not (below or maker.name in ("reshape", "convert")):
            break
        value = maker.operands[0]
    return value


def _pairs(op: Op) -> list[tuple[Value, Value]]:
    return list(zip(op.operands, op.results, strict=True))


def _again(r: Rewriter, op: Op, value: Value, kind: TensorType | None, region: Region | None) -> Value:
    """Make this collective of one other tensor."""
    regions = [] if region is None else [region]
    return r.op(op.name, [value], [kind or value.type], op.attributes, regions)[0]


def _region(name: str, dtype: Any) -> Region:
    a, b, c = (Value(TensorType((), dtype)) for _ in range(3))
    return Region((a, b), [Op(name, (a, b), (c,))], (c,))


def _gathered(r: Rewriter, op: Op, value: Value, count: int) -> Value:
    """The values of all ranks, with a first dimension for ranks."""
    shape = value.type.shape
    own = r.reshape(value, (1, *shape))
    attributes = {**_groups(op), "all_gather_dim": 0}
    return r.op("all_gather", [own], [TensorType((count, *shape), value.type.dtype)], attributes)[0]


def _groups(op: Op) -> dict[str, Any]:
    """The attributes that say who takes part."""
    kept = ("replica_groups", "channel_handle", "use_global_device_ids")
    return {name: op.attributes[name] for name in kept if name in op.attributes}


def _exchange(op: Op, count: int) -> dict[str, Any]:
    kept = {name: value for name, value in _groups(op).items() if name != "use_global_device_ids"}
    return {**kept, "split_dimension": 0, "concat_dimension": 0, "split_count": count}


def _combined(r: Rewriter, op: Op, every: Value, region: Region) -> Value:
    """The values along the first dimension, combined in the order of ranks.

    Raises:
        GraphError: "graph.unsupported" for a region with operations that are not element by element.
    """
    if not is_plain(region):
        raise unsupported(op, "its region has regions, or several results", "combine with one operation")
    count, kind = every.type.shape[0], TensorType(every.type.shape[1:], every.type.dtype)
    found = _part(r, every, 0, kind)
    for number in range(1, count):
        (found,) = on_tensors(r, region, [found, _part(r, every, number, kind)])
    return found


def _part(r: Rewriter, every: Value, number: int, kind: TensorType) -> Value:
    """The value of one rank, of those along the first dimension."""
    shape = every.type.shape
    part = r.one(
        "slice",
        [every],
        TensorType((1, *shape[1:]), kind.dtype),
        start_indices=(number, *(0,) * (len(shape) - 1)),
        limit_indices=(number + 1, *shape[1:]),
        strides=(1,) * len(shape),
    )
    return r.reshape(part, kind.shape)


def _split(r: Rewriter, value: Value, dim: int, count: int) -> Value:
    """A dimension in `count` parts, whose number becomes the first dimension."""
    shape = value.type.shape
    apart = r.reshape(value, (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]))
    return r.transpose(apart, (dim, *(d for d in range(len(shape) + 1) if d != dim)))


def _merged(r: Rewriter, parts: Value, dim: int) -> Value:
    """Parts along the first dimension, one behind the other along dimension `dim` of what is left."""
    shape = parts.type.shape[1:]
    order = (*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1))
    moved = r.transpose(parts, order)
    return r.reshape(moved, (*shape[:dim], shape[dim] * parts.type.shape[0], *shape[dim + 1 :]))


COLLECTIVES = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
    "collective_broadcast": collective_broadcast,
    "dynamic_slice": dynamic_slice,
}
"""By operation; `collective_permute`, `partition_id` and `replica_id` stay as they are."""
