"""ATen's operators that pick or replace elements by index tensors: gathers and scatters.

An index outside its dimension raises in PyTorch; on the device a gather clamps it and a scatter leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki.core.dtypes import bool_, int32
from nki.graph.importers.torch.builder import Builder, combiner
from nki.graph.importers.torch.table import Call, Operand, axis, converts, in_dtype, refused
from nki.graph.ir import TensorType, Value


def wrapped(b: Builder, index: Value, size: int) -> Value:
    """Indices with those that count from the end made to count from the start."""
    index = b.convert(index, int32)
    return b.select(b.compare("LT", index, 0), b.add(index, size), index)


def gathered(b: Builder, x: Value, starts: Value, shape: tuple[int, ...], **attributes: object) -> Value:
    """`attributes` are the dimension numbers, and the sizes of a slice."""
    numbers = {
        "offset_dims": (), "collapsed_slice_dims": (), "operand_batching_dims": (), "start_indices_batching_dims": (),
        "start_index_map": (), "index_vector_dim": len(starts.type.shape) - 1, "indices_are_sorted": False,
    }  # fmt: skip
    return b.one("gather", (x, starts), TensorType(shape, x.type.dtype), **{**numbers, **attributes})


def _scattered(b: Builder, x: Value, starts: Value, updates: Value, kind: str, **attributes: object) -> Value:
    """`kind` combines an element with its update; "second" is the update."""
    numbers = {
        "update_window_dims": (), "inserted_window_dims": (), "input_batching_dims": (),
        "scatter_indices_batching_dims": (), "scatter_dims_to_operand_dims": (),
        "index_vector_dim": len(starts.type.shape) - 1, "indices_are_sorted": False, "unique_indices": False,
    }  # fmt: skip
    regions = (combiner(kind, x.type.dtype, b.location),)
    return b.emit("scatter", (x, starts, updates), (x.type,), {**numbers, **attributes}, regions)[0]


@converts("embedding")
def _embedding(b: Builder, call: Call, table: Value, index: Value, *hints: object) -> Value:
    starts = b.reshape(b.convert(index, int32), (*index.type.shape, 1))
    rank = len(index.type.shape)
    return gathered(
        b, table, starts, call.type.shape, offset_dims=(rank,), collapsed_slice_dims=(0,), start_index_map=(0,),
        slice_sizes=(1, table.type.shape[1]),
    )  # fmt: skip


@converts("index_select")
def _index_select(b: Builder, call: Call, x: Value, dim: int, index: Value) -> Value:
    indices: list[Value | None] = [None] * len(x.type.shape)
    indices[axis(x, dim)] = b.reshape(index, (index.type.size,))
    return _index(b, call, x, indices)


@converts("index.Tensor", "_unsafe_index.Tensor")
def _index(b: Builder, call: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    dims, starts = _starts(b, call, x, indices)
    if not dims:
        return x
    rank = len(starts.type.shape) - 1
    rest = [i for i in range(len(x.type.shape)) if i not in dims]
    offsets = _places(dims, rest, rank)
    return gathered(
        b, x, starts, call.type.shape, offset_dims=offsets, collapsed_slice_dims=dims, start_index_map=dims,
        slice_sizes=tuple(1 if i in dims else size for i, size in enumerate(x.type.shape)),
    )  # fmt: skip


def _places(dims: Sequence[int], rest: Sequence[int], rank: int) -> tuple[int, ...]:
    """Where dimensions without an index are in the result: around those of the index if these are neighbours."""
    block = list(dims) == list(range(dims[0], dims[-1] + 1))
    first = dims[0] if block else 0
    return tuple(place if place < first else place + rank for place in range(len(rest)))


def _starts(b: Builder, call: Call, x: Value, indices: Sequence[Value | None]) -> tuple[tuple[int, ...], Value]:
    """Which dimensions are indexed, and the index tensors side by side in a last dimension."""
    dims = tuple(i for i, index in enumerate(indices) if index is not None)
    given = [index for index in indices if index is not None]
    if any(index.type.dtype is bool_ for index in given):
        raise refused(b, call, "a mask as an index", "use torch.where, whose result has a known size", x, *given)
    shape = np.broadcast_shapes(*(index.type.shape for index in given))
    parts = [b.expanded(wrapped(b, index, x.type.shape[dim]), shape) for dim, index in zip(dims, given, strict=True)]
    return dims, b.concatenate([b.reshape(part, (*shape, 1)) for part in parts], len(shape))


@converts("index_put")
def _index_put(
    b: Builder, call: Call, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool, *rest: bool
) -> Value:
    masks = [index for index in indices if index is not None and index.type.dtype is bool_]
    if masks and len(masks) == len(indices) == 1 and values.type.size == 1 and not accumulate:
        mask = b.reshape(masks[0], masks[0].type.shape + (1,) * (len(x.type.shape) - len(masks[0].type.shape)))
        return b.select(b.expanded(mask, x.type.shape), b.reshape(b.convert(values, call.dtype), ()), x)
    dims, starts = _starts(b, call, x, indices)
    rank = len(starts.type.shape) - 1
    others = [i for i in range(len(x.type.shape)) if i not in dims]
    window = _places(dims, others, rank)
    shape = list(starts.type.shape[:-1])
    for place, dim in zip(window, others, strict=True):
        shape.insert(place, x.type.shape[dim])
    updates = b.expanded(b.convert(values, x.type.dtype), shape)
    return _scattered(
        b, x, starts, updates, "add" if accumulate else "second", update_window_dims=window, inserted_window_dims=dims,
        scatter_dims_to_operand_dims=dims,
    )  # fmt: skip


@converts("gather")
def _gather(b: Builder, call: Call, x: Value, dim: int, index: Value, sparse_grad: bool) -> Value:
    return gathered_along(b, x, dim, index) if x.type.shape else b.reshape(x, call.type.shape)


def gathered_along(b: Builder, x: Value, dim: int, index: Value) -> Value:
    """Elements of one dimension at places that may differ for each of the others."""
    dim, rank = axis(x, dim), len(x.type.shape)
    others = tuple(i for i in range(rank) if i != dim)
    limits = [size if i == dim else index.type.shape[i] for i, size in enumerate(x.type.shape)]
    data = b.slices(x, [0] * rank, limits, [1] * rank)
    starts = b.reshape(wrapped(b, index, x.type.shape[dim]), (*index.type.shape, 1))
    return gathered(
        b, data, starts, index.type.shape, collapsed_slice_dims=(dim,), operand_batching_dims=others,
        start_indices_batching_dims=others, start_index_map=(dim,), slice_sizes=(1,) * rank,
    )  # fmt: skip


def _replaced(b: Builder, x: Value, dim: int, index: Value, updates: Operand, kind: str) -> Value:
    """`x` with elements along a dimension combined with updates."""
    shape = index.type.shape
    values = in_dtype(b, updates, x.type.dtype)
    if not x.type.shape:
        x, index, values = (b.reshape(value, (1,)) for value in (x, index, b.expanded(values, shape)))
        return b.reshape(_replaced(b, x, 0, index, values, kind), ())
    if values.type.shape != shape:
        limits = [*shape]
        values = b.slices(values, [0] * len(shape), limits, [1] * len(shape)) if values.type.shape else values
        values = b.expanded(values, shape)
    dim = axis(x, dim)
    starts = b.reshape(wrapped(b, index, x.type.shape[dim]), (*shape, 1))
    others = tuple(i for i in range(len(shape)) if i != dim)
    if all(shape[i] == x.type.shape[i] for i in others):
        return _scattered(
            b, x, starts, values, kind, inserted_window_dims=(dim,), input_batching_dims=others,
            scatter_indices_batching_dims=others, scatter_dims_to_operand_dims=(dim,),
        )  # fmt: skip
    every = tuple(range(len(shape)))
    columns = [starts if i == dim else b.iota((*shape, 1), i) for i in every]
    place = b.concatenate(columns, len(shape))
    return _scattered(b, x, place, values, kind, inserted_window_dims=every, scatter_dims_to_operand_dims=every)


@converts("scatter.src", "scatter.value")
def _scatter(b: Builder, call: Call, x: Value, dim: int, index: Value, source: Operand) -> Value:
    return _replaced(b, x, dim, index, source, "second")


@converts("scatter_add")
def _scatter_add(b: Builder, call: Call, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _replaced(b, x, dim, index, source, "add")


_KINDS = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


@converts("scatter_reduce.two")
def _scatter_reduce(
    b: Builder, call: Call, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool
) -> Value:
    if reduce not in _KINDS or not include_self:
        reason = f"reduce={reduce!r}, include_self={include_self}"
        raise refused(b, call, reason, "use sum, prod, amax or amin with include_self=True", x)
    return _replaced(b, x, dim, index, source, _KINDS[reduce])
