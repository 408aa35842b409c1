"""ATen's operators that move elements and do not change them. A view is a value of its own: the compiler finds out what
needs a copy."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.dtypes import bool_
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, axes, axis, converts
from nki.graph.ir import Value


@converts("alias", "detach", "lift_fresh_copy")
def _same(b: Builder, call: Call, x: Value) -> Value:
    return x


@converts("contiguous")
def _contiguous(b: Builder, call: Call, x: Value, memory_format: object) -> Value:
    return x  # the order of elements in memory is the compiler's affair


@converts("clone")
def _clone(b: Builder, call: Call, x: Value, memory_format: object) -> Value:
    return x  # memory formats say how PyTorch lays memory out; values are the same


@converts("copy")
def _copy(b: Builder, call: Call, x: Value, source: Value, non_blocking: bool) -> Value:
    return b.expanded(b.convert(source, x.type.dtype), x.type.shape)


@converts("_to_copy", "prims.convert_element_type.default")
def _to_copy(b: Builder, call: Call, x: Value, *options: object) -> Value:
    return b.convert(x, call.dtype)


@converts("view", "_unsafe_view", "reshape")
def _view(b: Builder, call: Call, x: Value, size: Sequence[int]) -> Value:
    return b.reshape(x, call.type.shape)


@converts("unsqueeze", "squeeze.dims")
def _resized(b: Builder, call: Call, x: Value, dimension: object = None) -> Value:
    return b.reshape(x, call.type.shape)


@converts("expand")
def _expand(b: Builder, call: Call, x: Value, size: Sequence[int], implicit: bool) -> Value:
    return b.expanded(x, call.type.shape)


@converts("permute")
def _permute(b: Builder, call: Call, x: Value, dimensions: Sequence[int]) -> Value:
    return b.transpose(x, [axis(x, dimension) for dimension in dimensions])


@converts("transpose.int")
def _transpose(b: Builder, call: Call, x: Value, first: int, second: int) -> Value:
    order = list(range(len(x.type.shape)))
    if order:
        order[first], order[second] = order[second], order[first]
    return b.transpose(x, order)


@converts("t")
def _t(b: Builder, call: Call, x: Value) -> Value:
    return b.transpose(x, tuple(range(len(x.type.shape)))[::-1])


@converts("slice.Tensor")
def _slice(b: Builder, call: Call, x: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    dim = axis(x, dim)
    bounds = slice(start, end, step).indices(x.type.shape[dim])
    return b.slice(x, dim, bounds[0], max(bounds[0], bounds[1]), step)


@converts("select.int")
def _select(b: Builder, call: Call, x: Value, dim: int, index: int) -> Value:
    dim = axis(x, dim)
    index %= x.type.shape[dim]
    return b.reshape(b.slice(x, dim, index, index + 1), call.type.shape)


@converts("cat")
def _cat(b: Builder, call: Call, parts: Sequence[Value], dim: int) -> Value:
    parts = [part for part in parts if part.type.shape != (0,)] or parts[:1]
    return b.concatenate([b.convert(part, call.dtype) for part in parts], axis(parts[0], dim))


@converts("split_with_sizes")
def _split_with_sizes(b: Builder, call: Call, x: Value, sizes: Sequence[int], dim: int) -> list[Value | None]:
    dim = axis(x, dim)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    made = zip(starts, sizes, strict=True)
    return [b.slice(x, dim, a, a + size) if i in call.used else None for i, (a, size) in enumerate(made)]


@converts("repeat")
def _repeat(b: Builder, call: Call, x: Value, repeats: Sequence[int]) -> Value:
    shape = (1,) * (len(repeats) - len(x.type.shape)) + x.type.shape
    spread = tuple(size for pair in zip(repeats, shape, strict=True) for size in pair)
    places = tuple(range(1, 2 * len(repeats), 2))
    return b.reshape(b.broadcast(b.reshape(x, shape), spread, places), call.type.shape)


@converts("flip")
def _flip(b: Builder, call: Call, x: Value, dimensions: Sequence[int]) -> Value:
    return b.reverse(x, axes(x, dimensions)) if dimensions else x


@converts("constant_pad_nd")
def _constant_pad_nd(b: Builder, call: Call, x: Value, padding: Sequence[int], value: float) -> Value:
    rank = len(x.type.shape)
    low, high = [0] * rank, [0] * rank
    for place in range(len(padding) // 2):
        low[rank - 1 - place], high[rank - 1 - place] = padding[2 * place], padding[2 * place + 1]
    return b.pad(x, value, low, high)


@converts("diagonal")
def _diagonal(b: Builder, call: Call, x: Value, offset: int, first: int, second: int) -> Value:
    first, second = axis(x, first), axis(x, second)
    rest = [i for i in range(len(x.type.shape)) if i not in (first, second)]
    data = b.transpose(x, (*rest, first, second))
    rows, columns = data.type.shape[-2:]
    count = call.type.shape[-1]
    start = offset if offset >= 0 else -offset * columns
    flat = b.reshape(data, (*data.type.shape[:-2], rows * columns))
    stop = start + (count - 1) * (columns + 1) + 1 if count else start
    return b.slice(flat, len(rest), start, stop, columns + 1)


@converts("unfold")
def _unfold(b: Builder, call: Call, x: Value, dim: int, size: int, step: int) -> Value:
    if not x.type.shape:  # has one window of one element, or of none
        return b.slice(b.reshape(x, (1,)), 0, 0, size)
    dim = axis(x, dim)
    count = call.type.shape[dim]
    shape = (*call.type.shape[:-1], 1)
    parts = [b.slice(x, dim, i, i + (count - 1) * step + 1, step) for i in range(size)]
    return b.concatenate([b.reshape(part, shape) for part in parts], len(shape) - 1)


@converts("slice_scatter")
def _slice_scatter(
    b: Builder, call: Call, x: Value, source: Value, dim: int, start: int | None, end: int | None, step: int
) -> Value:
    dim = axis(x, dim)
    size = x.type.shape[dim]
    first, last, _ = slice(start, end, step).indices(size)
    count = len(range(first, last, step))
    if not count:
        return x
    source = b.convert(source, x.type.dtype)
    behind = first + (count - 1) * step + 1
    if step > 1:
        return _interleaved(b, x, source, dim, (first, size - behind, step - 1))
    return b.concatenate([b.slice(x, dim, 0, first), source, b.slice(x, dim, behind, size)], dim)


def _interleaved(b: Builder, x: Value, source: Value, dim: int, room: tuple[int, int, int]) -> Value:
    """The source's elements with room before, behind and between them, and what was there in the room."""
    low, high, between = ([n if i == dim else 0 for i in range(len(x.type.shape))] for n in room)
    mask = b.constant(True, bool_, source.type.shape)
    return b.select(b.pad(mask, False, low, high, between), b.pad(source, 0, low, high, between), x)


@converts("select_scatter")  # PyTorch makes a choice between positions of it, for which every element is loaded
def _select_scatter(b: Builder, call: Call, x: Value, source: Value, dim: int, index: int) -> Value:
    dim = axis(x, dim)
    index %= x.type.shape[dim]
    shape = (*x.type.shape[:dim], 1, *x.type.shape[dim + 1 :])
    return _slice_scatter(b, call, x, b.reshape(source, shape), dim, index, index + 1, 1)
