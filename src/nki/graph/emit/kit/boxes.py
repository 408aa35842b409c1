"""Ranges of flattened groups of dimensions as regular patterns in device memory, as few as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

_MOST_DIMS = 5
"""Dimensions of an access pattern."""


@dataclass(frozen=True, slots=True)
class Dim:
    """Elements of one dimension and the step from one to the next in device memory."""

    count: int
    stride: int


@dataclass(frozen=True, slots=True)
class DimensionRun:
    """Part of a group of dimensions: `count` elements from `at` of the flattened group, in steps of `stride`.

    Attributes:
        offset: of the first one, in elements of the tensor.
    """

    at: int
    count: int
    stride: int
    offset: int


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major steps."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def joined(*sides: Sequence[Dim]) -> list[tuple[Dim, ...]]:
    """The dimensions of one group, merged where they follow each other in memory on every side.

    Args:
        sides: the same counts for every operand.
    """
    merged: list[list[Dim]] = [[] for _ in sides]
    for dims in zip(*sides, strict=True):
        if dims[0].count == 1:
            continue
        if merged[0] and all(m[-1].stride == d.count * d.stride for m, d in zip(merged, dims, strict=True)):
            for m, d in zip(merged, dims, strict=True):
                m[-1] = Dim(m[-1].count * d.count, d.stride)
        else:
            for m, d in zip(merged, dims, strict=True):
                m.append(d)
    return [tuple(m) or (Dim(1, 1),) for m in merged]


def runs(dims: Sequence[Dim], start: int, count: int) -> Iterator[DimensionRun]:
    """A range of a flattened group as runs along its last dimension."""
    inner, at = dims[-1], start
    while at < start + count:
        outer, first = divmod(at, inner.count)
        length = min(inner.count - first, start + count - at)
        offset = first * inner.stride
        for dim in reversed(dims[:-1]):
            outer, index = divmod(outer, dim.count)
            offset += index * dim.stride
        yield DimensionRun(at - start, length, inner.stride, offset)
        at += length


@dataclass(frozen=True, slots=True)
class RangeBox:
    """Part of a range: `count` elements from `at` of it on.

    Attributes:
        pattern: (stride, count) of dimensions, the last one fastest; none for one element.
        offset: of the first one, in elements of the tensor.
    """

    at: int
    count: int
    pattern: tuple[tuple[int, int], ...]
    offset: int


ONE = RangeBox(0, 1, (), 0)
"""A single element that is there for all."""

Cut = Callable[[Sequence[Dim], int, int], Iterator[RangeBox]]
"""Cuts a range, by start and count, of dimensions."""


def lines(dims: Sequence[Dim], start: int, count: int) -> Iterator[RangeBox]:
    """Boxes of one dimension."""
    for run in runs(dims, start, count):
        yield RangeBox(run.at, run.count, ((run.stride, run.count),), run.offset)


def boxes(dims: Sequence[Dim], start: int, count: int) -> Iterator[RangeBox]:
    """Boxes of several dimensions, where the range begins and ends with whole rows of the inner ones."""
    inner = dims[-1].count
    if len(dims) == 1 or start % inner or count % inner:
        yield from lines(dims, start, count)
        return
    for box in boxes(dims[:-1], start // inner, count // inner):
        pattern = (*box.pattern, (dims[-1].stride, inner))
        yield RangeBox(box.at * inner, box.count * inner, pattern, box.offset)


def bands_of(dims: Sequence[Sequence[RangeBox]]) -> list[RangeBox]:
    """All elements of the ranges that a dimension of a tile goes through, the last one fastest."""
    sizes = [sum(box.count for box in found) for found in dims]
    if all(len(found) == 1 for found in dims):
        return [_together([found[0] for found in dims], 0, prod(sizes))]
    *outer, inner = dims
    singles = [[_single(box, i) for box in found for i in range(box.count)] for found in outer]
    return [
        _together(chosen, sum(box.at * prod(sizes[dim + 1 :]) for dim, box in enumerate(chosen)), chosen[-1].count)
        for chosen in combinations(*singles, inner)
    ]


def _together(chosen: Sequence[RangeBox], at: int, count: int) -> RangeBox:
    pattern = tuple(pair for box in chosen for pair in box.pattern)
    return RangeBox(at, count, pattern, sum(box.offset for box in chosen))


def _single(box: RangeBox, index: int) -> RangeBox:
    """One element of a box."""
    offset, rest = box.offset, index
    for stride, count in reversed(box.pattern):
        rest, place = divmod(rest, count)
        offset += place * stride
    return RangeBox(box.at + index, 1, ((0, 1),), offset)


@dataclass(frozen=True, slots=True)
class Move:
    """What one transfer moves: a part of a tile, and its elements in device memory."""

    here: tuple[slice, ...]
    pattern: list[list[int]]
    offset: int


def moves(pieces: Sequence[RangeBox]) -> Iterator[Move]:
    """The transfers between a tile and a box for each of its dimensions: one, unless its pattern had too many."""
    pattern = [pair for piece in pieces for pair in piece.pattern]
    if len(pattern) > _MOST_DIMS:
        pattern = _merged(pattern)
    if len(pattern) <= _MOST_DIMS:
        here = tuple(slice(piece.at, piece.at + piece.count) for piece in pieces)
        yield Move(here, [list(pair) for pair in pattern], sum(piece.offset for piece in pieces))
        return
    most = max(range(len(pieces)), key=lambda position: len(pieces[position].pattern))
    for part in _taken_apart(pieces[most]):
        yield from moves([*pieces[:most], part, *pieces[most + 1 :]])


def even(box: RangeBox) -> Iterator[RangeBox]:
    """A box in parts whose elements follow each other in one step, which is the only one of their patterns."""
    pattern = _merged(box.pattern)
    if len(pattern) == 1:
        yield RangeBox(box.at, box.count, tuple(pattern), box.offset)
        return
    for part in _taken_apart(RangeBox(box.at, box.count, tuple(pattern), box.offset)):
        yield from even(part)


def _merged(pattern: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without dimensions of one element; those that follow each other in memory as one."""
    found: list[tuple[int, int]] = []
    for stride, count in pattern:
        if count == 1:
            continue
        if found and found[-1][0] == stride * count:
            found[-1] = (stride, found[-1][1] * count)
        else:
            found.append((stride, count))
    return found or [(1, 1)]


def _taken_apart(box: RangeBox) -> Iterator[RangeBox]:
    """A box for each step of the outermost dimension of one."""
    (stride, count), *rest = box.pattern
    size = prod(inner for _, inner in rest)
    for step in range(count):
        yield RangeBox(box.at + step * size, size, tuple(rest), box.offset + step * stride)
