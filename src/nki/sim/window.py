"""A window: the NumPy view of one `View` in the bytes of a buffer, and what is known about those bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core.tensor import View
from nki.sim.pieces import Box

UNKNOWN_STATE = -1


class Window:
    """Where a static view lies in memory. A storage keeps its windows, so that a view is worked out once.

    Attributes:
        covers: whether writing all elements writes all bytes of the buffer.
        readable: the first byte of each element is known to be written, which never ends.
        written: all bytes are known to be written, which never ends.
        state: who wrote all elements of a PSUM view last, as in ``LiveStorage.psum_state``; -1 if unknown or mixed.
        box: partitions and bytes in a partition that an on-chip view may touch, half open.
        solid: the view is exactly this box, of rows with this distance in HBM; None if it is no box.
    """

    __slots__ = ("_arrays", "_place", "_view", "box", "covers", "readable", "solid", "state", "written")

    def __init__(self, view: View, base: np.ndarray, start: int, pitch: int) -> None:
        """`start` and `pitch` are those of the storage, in bytes of `base`; the view is static."""
        size, buffer = view.dtype.itemsize, view.buffer
        self._view, self._place = view, (base, start, pitch)
        self._arrays: tuple[np.ndarray, np.ndarray | None] | None = None
        self.covers = buffer.address is None and view.size * size == buffer.nbytes and 0 not in view.strides
        self.readable = False
        self.written = False
        self.state = UNKNOWN_STATE
        self.box = _box(view, size)
        self.solid = None if self.covers else _solid(view, size, self.box)

    @property
    def bits(self) -> np.ndarray:
        """The elements in the view's shape, without a copy."""
        return (self._arrays or self._made())[0]

    @property
    def rows(self) -> np.ndarray | None:
        """The elements as ``(first dimension, rest)`` without a copy; None if it takes one."""
        return (self._arrays or self._made())[1]

    def _made(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Make `bits` and `rows` when NumPy needs them for the first time: native code needs neither."""
        (base, start, pitch), dtype = self._place, self._view.dtype.numpy
        begin, strides = placement(self._view, start, pitch)
        bits: np.ndarray = np.ndarray(self._view.shape, dtype, base, begin, strides)
        self._arrays = (bits, bits if bits.ndim == 2 else _rows(bits, dtype, base, begin))
        return self._arrays

    def flat(self) -> np.ndarray:
        """The elements as ``(first dimension, rest)``, copied where that is necessary."""
        rows = self.rows
        return self.bits.reshape(self.bits.shape[0], -1) if rows is None else rows

    def overlaps(self, other: Window) -> bool:
        """False if no byte lies in both."""
        first, last, low, high = self.box
        other_first, other_last, other_low, other_high = other.box
        return first < other_last and other_first < last and low < other_high and other_low < high


def placement(view: View, start: int, pitch: int) -> tuple[int, tuple[int, ...]]:
    """Position of the first byte and the strides in bytes of a static view."""
    size = view.dtype.itemsize
    if not view.buffer.on_chip:
        return start + view.offset * size, tuple([s * size for s in view.strides])
    partition, free = divmod(view.offset, view.row)
    return start + partition * pitch + free * size, (pitch, *[s * size for s in view.strides[1:]])


def byte_window(view: View, base: np.ndarray, start: int, pitch: int) -> np.ndarray:
    """All bytes of a static view in an array with one item per byte; the bytes of an element lie in the last dimension.

    Neighbours are merged, because NumPy is fast where the last dimension is long.
    """
    size = view.dtype.itemsize
    begin, strides = placement(view, start, pitch)
    if strides and strides[-1] == size:
        shape, strides = (*view.shape[:-1], view.shape[-1] * size), (*strides[:-1], 1)
    else:
        shape, strides = (*view.shape, size), (*strides, 1)
    return np.ndarray(shape, base.dtype, base, begin, strides)


def _rows(bits: np.ndarray, dtype: np.dtype[Any], base: np.ndarray, begin: int) -> np.ndarray | None:
    """The dimensions but the first one as one, if a single stride steps through them."""
    count, stride = 1, dtype.itemsize
    for size, step in zip(reversed(bits.shape[1:]), reversed(bits.strides[1:]), strict=True):
        if size == 1:
            continue
        if count == 1:
            stride = step
        elif step != stride * count:
            return None
        count *= size
    return np.ndarray((bits.shape[0], count), dtype, base, begin, (bits.strides[0], stride))


def _box(view: View, size: int) -> Box:
    if not view.buffer.on_chip:
        return 0, 1, 0, view.buffer.nbytes
    partition, free = divmod(view.offset, view.row)
    spans = [(n - 1) * s for n, s in zip(view.shape[1:], view.strides[1:], strict=True)]
    low = free + sum([s for s in spans if s < 0])
    high = free + sum([s for s in spans if s > 0])
    if low < 0 or high >= view.row:  # leaves its partition: take all of them
        return 0, view.buffer.partitions, 0, view.buffer.row_bytes
    return partition, partition + view.shape[0], low * size, (high + 1) * size


def _solid(view: View, size: int, box: Box) -> tuple[Box, int] | None:
    """The box that a view fills, and the distance of its rows: 0 on chip, where the storage has it."""
    expected = 1
    for count, stride in zip(view.shape[:0:-1], view.strides[:0:-1], strict=True):
        if count != 1 and stride != expected:
            return None
        expected *= count
    if view.buffer.on_chip:
        first, last, low, high = box
        return (box, 0) if high - low == expected * size and last - first == view.shape[0] else None
    pitch = view.strides[0] if view.strides else 0
    if pitch < expected:
        return None
    row, column = divmod(view.offset, pitch)
    if column + expected > pitch:
        return None
    return (row, row + view.shape[0], column * size, (column + expected) * size), pitch * size
