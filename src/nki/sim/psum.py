"""Who wrote each PSUM location last, which decides what an accumulating matmul does there."""

from __future__ import annotations

import numpy as np

from nki.core.tensor import View
from nki.sim.memory import LiveStorage
from nki.sim.window import UNKNOWN_STATE, Window, placement

UNWRITTEN = 0
BY_MATMUL = 1
BY_OTHERS = 2
_MOST_KNOWN = 64


def byte_states(storage: LiveStorage) -> np.ndarray:
    """The states of all bytes, for whoever reads or changes some of them; an element's state is that of its first byte.

    From here on the storage keeps them one by one.
    """
    if storage.psum_state is None:
        assert storage.psum_whole is not None, "only PSUM buffers keep this state"
        state, size = storage.psum_whole
        storage.psum_state = np.zeros(storage.buffer.partitions * storage.buffer.row_bytes, np.uint8)
        storage.psum_state[::size] = state
        storage.psum_whole = None
    return storage.psum_state


def psum_state(storage: LiveStorage, view: View) -> np.ndarray:
    """uint8 per element of a PSUM view: 0 unwritten, 1 written by matmul, 2 written by another engine."""
    begin, strides = placement(view, 0, storage.buffer.row_bytes)
    return np.ndarray(view.shape, np.uint8, byte_states(storage), begin, strides)


def common_state(storage: LiveStorage, view: View, window: Window) -> int:
    """The state of all elements if they have the same one, else -1."""
    whole = storage.psum_whole
    if whole is not None and view.dtype.itemsize % whole[1] == 0:
        return whole[0]
    if window.state == UNKNOWN_STATE:
        states = psum_state(storage, view)
        first = int(states.flat[0])
        if bool((states == first).all()):
            _know(storage, window, first)
    return window.state


def set_state(storage: LiveStorage, view: View, window: Window, writer: int, where: np.ndarray | None = None) -> None:
    """Note who writes a static view, or with `where` (bool per element) some elements of it."""
    if window.state == writer:
        return
    whole, size = storage.psum_whole, view.dtype.itemsize
    if whole is not None and where is None and window.covers and (whole[0] == UNWRITTEN or whole[1] == size):
        storage.psum_whole = (writer, size)
        return
    np.copyto(psum_state(storage, view), writer, where=True if where is None else where)
    kept = []
    for other in storage.stated:
        if other.overlaps(window):
            other.state = UNKNOWN_STATE
        else:
            kept.append(other)
    storage.stated = kept
    if where is None:
        _know(storage, window, writer)


def forget_states(storage: LiveStorage) -> None:
    """The states were changed past the windows."""
    for window in storage.stated:
        window.state = UNKNOWN_STATE
    storage.stated = []


def _know(storage: LiveStorage, window: Window, state: int) -> None:
    if len(storage.stated) >= _MOST_KNOWN:
        forget_states(storage)
    window.state = state
    storage.stated.append(window)
