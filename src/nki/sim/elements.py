"""Elements of a buffer by number: what gathers and scatters address."""

from __future__ import annotations

import numpy as np

from nki.core.dtypes import DType
from nki.sim.memory import LiveStorage


def elements(storage: LiveStorage, dtype: DType) -> np.ndarray:
    """The bytes from the first to the last element of a buffer, one-dimensional; see `positions`."""
    storage.settle()
    return storage.base[_span(storage)].view(dtype.numpy)


def positions(storage: LiveStorage, dtype: DType, flat: np.ndarray) -> np.ndarray:
    """Where elements lie in `elements`, from their numbers in the buffer.

    The two differ for a buffer with an explicit address, whose partitions lie apart by the pitch of the memory.
    """
    row = storage.buffer.row_bytes // dtype.itemsize
    pitch = storage.pitch // dtype.itemsize
    if not storage.buffer.on_chip or pitch == row:
        return flat
    partition, free = np.divmod(flat, row)
    return partition * pitch + free


def written_elements(storage: LiveStorage, dtype: DType, flat: np.ndarray) -> np.ndarray:
    """Bool per element: whether its first byte was written."""
    storage.settle()
    if storage.written is None:
        return np.ones(flat.shape, bool)
    notes, places = _notes(storage, dtype, flat)
    return notes[places, 0]


def mark_elements(storage: LiveStorage, dtype: DType, flat: np.ndarray) -> None:
    """Note that elements are written; to be called before they are."""
    storage.settle()
    if storage.written is not None:
        notes, places = _notes(storage, dtype, flat)
        notes[places] = True


def _notes(storage: LiveStorage, dtype: DType, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(elements, bytes)`` of the notes of a buffer, and where elements lie in them."""
    assert storage.written is not None, "only asked while something is unwritten"
    if storage.note_pitch == storage.pitch:
        return storage.written[_span(storage)].reshape(-1, dtype.itemsize), positions(storage, dtype, flat)
    return storage.written.reshape(-1, dtype.itemsize), flat


def _span(storage: LiveStorage) -> slice:
    buffer = storage.buffer
    return slice(storage.start, storage.start + (buffer.partitions - 1) * storage.pitch + buffer.row_bytes)
