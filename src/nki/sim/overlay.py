"""What a kernel sees of a buffer that shares its bytes with others: poison where it wrote nothing itself."""

from __future__ import annotations

import numpy as np

from nki.core.tensor import whole
from nki.sim.memory import LiveStorage
from nki.sim.unwritten import fill_unwritten
from nki.sim.window import byte_window


def as_seen(storage: LiveStorage) -> LiveStorage:
    """A copy of the buffer with poison in place of what others left; the same storage if nothing can be left.

    Where tensors have bytes of their own, the poison is there. The copy takes a while, but only kernels that read what
    nobody wrote need it, and they get a warning.
    """
    if not storage.overlaid:
        return storage
    storage.settle()
    if storage.written is None:
        return storage
    buffer = storage.buffer
    view = whole(buffer)
    dense = np.empty(buffer.nbytes, np.uint8)
    fill_unwritten(dense, None if buffer.address is not None else buffer.dtype, storage.uninitialized)
    mask = byte_window(view, storage.written, storage.note_start, storage.note_pitch)
    bits = byte_window(view, storage.base, storage.start, storage.pitch)
    np.copyto(byte_window(view, dense, 0, buffer.row_bytes), bits, where=mask)
    seen = LiveStorage(buffer, dense, buffer.row_bytes, 0, None)
    seen.shadow = storage.shadow
    return seen
