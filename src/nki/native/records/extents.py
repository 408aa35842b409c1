"""Whether operands of one instruction share bytes."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from nki.core.tensor import View
from nki.native.operand_layout import Place, row_dims, start_of


class Overlap(Enum):
    """How an operand that is read lies to one that is written."""

    none = 0
    same = 1
    """Element by element the same bytes."""
    within = 2
    """Only inside a partition: a copy of the partition's elements made before the first store is enough."""
    across = 3
    """A partition that is written may be read later as another one."""


class Extent(NamedTuple):
    """Bytes of a view: partitions ``first`` to ``last`` and bytes ``low`` to ``high`` of each, half open."""

    memory: tuple[int, int]
    first: int
    last: int
    low: int
    high: int


class ViewExtent(NamedTuple):
    """The shape of what a static view touches.

    Attributes:
        partitions: how many; 0 in HBM, which is one row.
        low, high: bytes of each that it touches, from its first element on; half open.
    """

    partitions: int
    low: int
    high: int


def box(view: View) -> ViewExtent:
    """The box of a view, wherever it is."""
    size, on_chip = view.dtype.itemsize, view.buffer.on_chip
    steps = [(n - 1) * s * size for n, s in zip(view.shape, view.strides, strict=True)][on_chip:]
    low = sum([step for step in steps if step < 0])
    high = sum([step for step in steps if step > 0]) + size
    return ViewExtent(view.shape[0] if on_chip else 0, low, high)


def extent_at(begin: int, shape: ViewExtent, place: Place) -> Extent:
    """The bytes of a box whose first element is `begin` bytes behind the base of a place."""
    first, last = 0, 1
    if shape.partitions:
        column = place.start % place.pitch
        first, begin = divmod(begin - column, place.pitch)
        begin += column
        last = first + shape.partitions
    return Extent((place.base, place.memory), first, last, begin + shape.low, begin + shape.high)


def extent(view: View, place: Place) -> Extent:
    """The box around a static view; HBM is one partition."""
    return extent_at(start_of(view, place)[0], box(view), place)


def overlap(read: View, at: Place, written: View, to: Place) -> Overlap:
    """How a static view that is read lies to one that is written."""
    a, b = extent(read, at), extent(written, to)
    if a.memory != b.memory or a.first >= b.last or b.first >= a.last or a.low >= b.high or b.low >= a.high:
        return Overlap.none
    if _interleaved(read, written, a, b):
        return Overlap.none
    if start_of(read, at) == start_of(written, to) and _steps(read) == _steps(written):
        return Overlap.same
    if read.buffer.on_chip and written.buffer.on_chip and a.first == b.first and at.pitch == to.pitch:
        return Overlap.within
    return Overlap.across


def _steps(view: View) -> tuple[int, int, object]:
    return view.shape[0], view.dtype.itemsize, row_dims(view)


def _interleaved(read: View, written: View, a: Extent, b: Extent) -> bool:
    """Both step by the same stride, and from different places in it."""
    size = read.dtype.itemsize
    one, two = row_dims(read), row_dims(written)
    if not one or not two or size != written.dtype.itemsize or not read.buffer.on_chip or a.first != b.first:
        return False
    steps = {abs(stride) for _, stride in (*one, *two)}
    step = min(steps)
    if step == 0 or any(other % step for other in steps):
        return False
    shift = (a.low - b.low) % step
    return size <= shift <= step - size
