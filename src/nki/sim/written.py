"""Which bytes of a buffer were written: the notes behind the warning about reads of what nobody wrote."""

from __future__ import annotations

import numpy as np

from nki.core.tensor import MemoryRegion, View
from nki.sim.memory import LiveStorage
from nki.sim.pieces import Box, Pieces
from nki.sim.window import Window, byte_window, placement


def is_written(storage: LiveStorage, view: View, window: Window) -> bool:
    """Whether the first byte of every element of a static view was written."""
    if window.readable:
        return True
    if window.solid is not None and box_written(storage, *window.solid):
        window.readable = True
        return True
    storage.settle()
    if storage.written is None:
        window.readable = True
    else:
        every_byte = byte_window(view, storage.written, storage.note_start, storage.note_pitch)
        window.readable = bool(np.logical_and.reduce(every_byte, axis=None)) or bool(_first_bytes(storage, view).all())
    return window.readable


def mark_written(storage: LiveStorage, view: View, window: Window, where: np.ndarray | None = None) -> None:
    """Note that all bytes of a static view are about to be written; with `where`, those of some elements.

    To be called before the bytes change, because it makes the poison around them.
    """
    if window.written:
        return
    if where is None:
        window.written = window.readable = True
        if window.covers:
            _all_written(storage)
            return
        if storage.fresh and window.solid is not None and mark_box(storage, *window.solid):
            return
    storage.settle()
    if storage.written is None:
        return
    if where is None:
        byte_window(view, storage.written, storage.note_start, storage.note_pitch)[...] = True
        _count_down(storage, view.nbytes)
    else:
        begin, strides = placement(view, storage.note_start, storage.note_pitch)
        shape = (*view.shape, view.dtype.itemsize)
        mask: np.ndarray = np.ndarray(shape, np.dtype(bool), storage.written, begin, (*strides, 1))
        np.copyto(mask, True, where=where[..., None])


def box_written(storage: LiveStorage, box: Box, pitch: int) -> bool:
    """Whether a box, as in `Window.solid`, is known to be written, without a look at its bytes."""
    pieces = storage.pieces
    return storage.fresh and pieces is not None and pieces.pitch == pitch and pieces.holds(box)


def mark_box(storage: LiveStorage, box: Box, pitch: int) -> bool:
    """Note a write to a box of a fresh buffer without notes on every byte; False if that is not possible.

    A buffer that is written piece by piece needs no others.
    """
    if storage.buffer.address is not None:
        return False
    if storage.pieces is None:
        storage.pieces = Pieces(pitch)
    if storage.pieces.pitch != pitch:
        return False
    if storage.pieces.holds(box):
        return True
    if not storage.pieces.add(box):
        return False
    if len(storage.pieces.boxes) == 1 and storage.pieces.size() == storage.buffer.nbytes:
        _all_written(storage)
    return True


def _all_written(storage: LiveStorage) -> None:
    if storage.written is not None and storage.buffer.region is MemoryRegion.shared_hbm:
        storage.written[...] = True  # the other core looks at the same mask
    storage.fresh = False
    storage.written = None
    storage.pieces = None


def _count_down(storage: LiveStorage, count: int) -> None:
    """Forget the mask when nothing is left to write. The look at all of it waits until that much was marked."""
    if storage.buffer.address is not None:
        return
    storage.unmarked -= count
    if storage.unmarked <= 0 and storage.written is not None:
        left = storage.written.size - int(np.count_nonzero(storage.written))
        storage.unmarked = max(left, storage.written.size // 8)
        if left == 0:
            storage.written = None


def _first_bytes(storage: LiveStorage, view: View) -> np.ndarray:
    assert storage.written is not None, "only asked while something is unwritten"
    begin, strides = placement(view, storage.note_start, storage.note_pitch)
    return np.ndarray(view.shape, np.dtype(bool), storage.written, begin, strides)
