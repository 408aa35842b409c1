"""Who wrote each PSUM location last, which decides what an accumulating matmul does there."""

from __future__ import annotations

import numpy as np

from nki.core.tensor import View
from nki.sim.memory import LiveStorage
from nki.sim.pieces import Box, Pieces
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
        if storage.psum_pieces is None:
            storage.psum_state[::size] = state
        else:
            for piece in storage.psum_pieces.bytes_in(storage.psum_state, 0, storage.buffer.row_bytes):
                piece[:, ::size] = state
        storage.psum_whole = storage.psum_pieces = None
    return storage.psum_state


def psum_state(storage: LiveStorage, view: View) -> np.ndarray:
    """uint8 per element of a PSUM view: 0 unwritten, 1 written by matmul, 2 written by another engine."""
    begin, strides = placement(view, 0, storage.buffer.row_bytes)
    return np.ndarray(view.shape, np.uint8, byte_states(storage), begin, strides)


def common_state(storage: LiveStorage, view: View, window: Window) -> int:
    """The state of all elements if they have the same one, else -1."""
    known = box_state(storage, window.box, view.dtype.itemsize)
    if known != UNKNOWN_STATE:
        return known
    if window.state == UNKNOWN_STATE:
        states = psum_state(storage, view)
        first = int(states.flat[0])
        if bool((states == first).all()):
            _know(storage, window, first)
    return window.state


def box_state(storage: LiveStorage, box: Box, size: int) -> int:
    """The state of all elements of a size in a box, if they have the same one and that takes no look at each; else -1.

    The elements may leave out some of the box.
    """
    whole, pieces = storage.psum_whole, storage.psum_pieces
    if whole is None or size % whole[1]:
        return UNKNOWN_STATE
    if pieces is None or pieces.holds(box):
        return whole[0]
    return UNKNOWN_STATE if pieces.touches(box) else UNWRITTEN


def set_state(storage: LiveStorage, view: View, window: Window, writer: int, where: np.ndarray | None = None) -> None:
    """Note who writes a static view, or with `where` (bool per element) some elements of it."""
    if window.state == writer:
        return
    box = None if window.solid is None else window.solid[0]
    if where is None and set_box(storage, box, window.covers, (writer, view.dtype.itemsize)):
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


def set_box(storage: LiveStorage, box: Box | None, covers: bool, state: tuple[int, int]) -> bool:
    """Note a write without a state for every byte; False if that is not possible.

    Args:
        box: what is written, if that is a box.
        covers: whether it is all of the buffer.
        state: who writes, and the size of an element.
    """
    whole, pieces = storage.psum_whole, storage.psum_pieces
    if whole is None:
        return False
    if covers and (whole[0] == UNWRITTEN or whole[1] == state[1]):
        storage.psum_whole, storage.psum_pieces = state, None
        return True
    if pieces is None:
        if whole == state:
            return True
        if box is None or whole[0] != UNWRITTEN:
            return False
        pieces = Pieces(0)
    elif whole != state or box is None:
        return False
    if not pieces.holds(box) and not pieces.add(box):
        return False
    complete = len(pieces.boxes) == 1 and pieces.size() == storage.buffer.nbytes
    storage.psum_whole, storage.psum_pieces = state, None if complete else pieces
    return True


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
