"""Rows of an HBM buffer at run-time addresses: moved row by row, without an index per element."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nki.core.tensor import View
from nki.sim.memory import LiveStorage


class Reach(NamedTuple):
    """The elements that a row can touch, counted from its first one: ``low <= element - start <= high``."""

    low: int
    high: int


def reach(view: View) -> Reach:
    """What one row of a view touches."""
    spans = [(n - 1) * s for n, s in zip(view.shape[1:], view.strides[1:], strict=True)]
    return Reach(sum([s for s in spans if s < 0]), sum([s for s in spans if s > 0]))


def is_block(view: View) -> bool:
    """Whether a row is one piece of memory in ascending order."""
    step = 1
    for size, stride in zip(reversed(view.shape[1:]), reversed(view.strides[1:]), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def every_row(storage: LiveStorage, view: View) -> np.ndarray:
    """``(starts, *shape of a row)``: item s is the row that starts at element s of an HBM buffer, without a copy.

    For views whose rows reach upwards only.
    """
    storage.settle()
    size = view.dtype.itemsize
    count = view.buffer.nbytes // size - reach(view).high
    strides = (size, *[s * size for s in view.strides[1:]])
    return np.ndarray((count, *view.shape[1:]), view.dtype.numpy, storage.base, storage.start, strides)


def _every_piece(storage: LiveStorage, view: View) -> np.ndarray:
    """Notes of the rows of `every_row`, bool ``(starts, bytes of a row)``: item s is the row that starts at element s.

    For rows that are one piece of memory each, and while there are notes.
    """
    assert storage.written is not None, "only asked while something is unwritten"
    size = view.dtype.itemsize
    length = view.free_size * size
    count = view.buffer.nbytes // size - reach(view).high
    return np.ndarray((count, length), np.dtype(bool), storage.written, storage.start, (size, 1))


def mark_rows(storage: LiveStorage, view: View, starts: np.ndarray) -> None:
    """Note that rows, each one piece of memory, are written; to be called before they are."""
    storage.settle()
    if storage.written is not None:
        _every_piece(storage, view)[starts] = True


def rows_written(storage: LiveStorage, view: View, starts: np.ndarray) -> bool:
    """True if all bytes of these rows, each one piece of memory, were written."""
    storage.settle()
    return storage.written is None or bool(_every_piece(storage, view)[starts].all())
