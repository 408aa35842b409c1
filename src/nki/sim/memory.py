"""Real bytes for every buffer, with poison for what was never written."""

from __future__ import annotations

import os
import weakref

import numpy as np

from nki.core.dtypes import DType
from nki.core.errors import ExecutionError, TensorError
from nki.core.numerics import poison_fill, to_f32
from nki.core.tensor import Buffer, MemoryRegion, Storage, View
from nki.target.model import Target

_LIMIT_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class LiveStorage(Storage):
    """Bytes of one buffer.

    Attributes:
        base: contiguous uint8 memory that holds them, possibly shared with other buffers.
        pitch, start: byte ``p * pitch + start + b`` of `base` is byte b of partition p.
        written: bool per byte with the same layout, or None once everything was written.
        psum_state: uint8 per byte of a PSUM buffer: 0 never written, 1 by a matmul, 2 by another engine.
        shadow: float32 values ``(partitions, elements)`` in place of the rounded ones, or None.
    """

    __slots__ = ("base", "pitch", "psum_state", "shadow", "start", "written")

    def __init__(self, buffer: Buffer, base: np.ndarray, pitch: int, start: int, written: np.ndarray | None) -> None:
        super().__init__(buffer, base)
        self.base = base
        self.pitch = pitch
        self.start = start
        self.written = written
        psum = buffer.region is MemoryRegion.psum
        self.psum_state = np.zeros(buffer.partitions * buffer.row_bytes, np.uint8) if psum else None
        self.shadow: np.ndarray | None = None

    def values(self, view: View) -> np.ndarray | None:
        if view.dynamic is not None:
            return None
        shadow = shadow_of(self, view)
        return np.array(strided(self, view) if shadow is None else shadow)


class Memory:
    """The memories of one core (SBUF, PSUM) and the HBM buffers that it sees."""

    def __init__(self, target: Target, *, precise_fp: bool = True) -> None:
        self._target = target
        self._precise_fp = precise_fp
        self._live: weakref.WeakValueDictionary[int, LiveStorage] = weakref.WeakValueDictionary()
        self._arenas: dict[MemoryRegion, tuple[np.ndarray, np.ndarray]] = {}

    def allocate(self, buffer: Buffer) -> LiveStorage:
        """Bytes for a buffer: its own, or, with an explicit address, a window of the real array."""
        if buffer.address is not None and buffer.on_chip:
            storage = self._place(buffer)
        else:
            storage = _own(buffer)
        if not self._precise_fp and _is_low_precision(buffer.dtype):
            storage.shadow = np.full((buffer.partitions, buffer.row_bytes // buffer.dtype.itemsize), np.nan, np.float32)
        self._live[buffer.id] = storage
        return storage

    def adopt(self, buffer: Buffer, array: np.ndarray) -> LiveStorage:
        """Use the bytes of a contiguous array as an HBM buffer; kernels write straight into it."""
        storage = LiveStorage(buffer, array.reshape(-1).view(np.uint8), buffer.row_bytes, 0, None)
        if not self._precise_fp and _is_low_precision(buffer.dtype):
            storage.shadow = to_f32(array.reshape(1, -1), buffer.dtype).copy()
        self._live[buffer.id] = storage
        return storage

    def share(self, storage: LiveStorage) -> None:
        """Make a buffer of another core visible here."""
        self._live[storage.buffer.id] = storage

    def storage(self, view: View) -> LiveStorage:
        """The live storage behind a view."""
        try:
            return self._live[view.buffer.id]
        except KeyError:
            raise ExecutionError(
                "memory.freed",
                f"tensor {view.buffer.name!r} has no storage any more",
                fix="keep the tensor alive until its last use",
            ) from None

    def _place(self, buffer: Buffer) -> LiveStorage:
        memory = self._target.psum if buffer.region is MemoryRegion.psum else self._target.sbuf
        pitch = memory.bytes_per_partition
        partition, byte = buffer.address or (0, 0)
        if buffer.region not in self._arenas:
            base = np.full(self._target.partitions * pitch, 0xFF, np.uint8)
            self._arenas[buffer.region] = (base, np.zeros(base.shape, bool))
        base, written = self._arenas[buffer.region]
        return LiveStorage(buffer, base, pitch, partition * pitch + byte, written)


def _own(buffer: Buffer) -> LiveStorage:
    if 2 * buffer.nbytes > _LIMIT_BYTES:  # as much again notes which bytes were written
        raise TensorError(
            "tensor.huge",
            f"{buffer.name or 'the tensor'} has {buffer.nbytes} bytes, and twice that is needed",
            rule=f"this machine has {_LIMIT_BYTES} bytes of memory",
            fix="use a smaller shape",
        )
    if buffer.data is not None:
        return LiveStorage(buffer, np.frombuffer(buffer.data, np.uint8).copy(), buffer.row_bytes, 0, None)
    base = np.empty(buffer.nbytes, np.uint8)
    poison_fill(base, buffer.dtype)
    return LiveStorage(buffer, base, buffer.row_bytes, 0, np.zeros(buffer.nbytes, bool))


def strided(storage: LiveStorage, view: View) -> np.ndarray:
    """A NumPy view of the elements, without a copy; static addresses only."""
    return _window(storage, view, storage.base, view.dtype.numpy, view.dtype.itemsize)


def written_mask(storage: LiveStorage, view: View) -> np.ndarray:
    """Bool per element: whether its first byte was written."""
    assert storage.written is not None, "only asked while something is unwritten"
    return _window(storage, view, storage.written, np.dtype(bool), view.dtype.itemsize)


def mark_written(storage: LiveStorage, view: View, where: np.ndarray | None = None) -> None:
    """Note that all bytes of a view are written, or with `where` (bool per element) those of some elements."""
    if storage.written is None:
        return
    if (
        where is None
        and view.size * view.dtype.itemsize == storage.buffer.nbytes
        and storage.buffer.address is None
        and 0 not in view.strides
    ):
        if view.buffer.region is MemoryRegion.shared_hbm:  # the other core looks at the same mask
            storage.written[...] = True
        else:
            storage.written = None
        return
    size = view.dtype.itemsize
    if size == 1 and where is None:
        written_mask(storage, view)[...] = True
        return
    wide = np.ndarray(
        (*view.shape, size),
        np.dtype(bool),
        storage.written,
        _start(storage, view, size),
        (*_byte_strides(storage, view, size), 1),
    )
    np.copyto(wide, True, where=True if where is None else where[..., None])


def psum_state(storage: LiveStorage, view: View) -> np.ndarray:
    """uint8 per element of a PSUM view: 0 unwritten, 1 written by matmul, 2 written by another engine."""
    assert storage.psum_state is not None, "only PSUM buffers keep this state"
    size, row = view.dtype.itemsize, storage.buffer.row_bytes
    partition, free = divmod(view.offset, view.row)
    return np.ndarray(
        view.shape,
        np.uint8,
        storage.psum_state,
        partition * row + free * size,
        (row, *(s * size for s in view.strides[1:])),
    )


def shadow_of(storage: LiveStorage, view: View) -> np.ndarray | None:
    """The float32 plane behind a view, if the buffer has one and the view does not reinterpret its dtype."""
    if storage.shadow is None or view.dtype != storage.buffer.dtype:
        return None
    row = storage.shadow.shape[1] * 4
    if not view.on_chip:
        return np.ndarray(view.shape, np.float32, storage.shadow, view.offset * 4, tuple(s * 4 for s in view.strides))
    partition, free = divmod(view.offset, view.row)
    return np.ndarray(
        view.shape, np.float32, storage.shadow, partition * row + free * 4, (row, *(s * 4 for s in view.strides[1:]))
    )


def _window(storage: LiveStorage, view: View, base: np.ndarray, dtype: np.dtype, size: int) -> np.ndarray:
    return np.ndarray(view.shape, dtype, base, _start(storage, view, size), _byte_strides(storage, view, size))


def _start(storage: LiveStorage, view: View, size: int) -> int:
    if not view.buffer.on_chip:
        return storage.start + view.offset * size
    partition, free = divmod(view.offset, view.buffer.row_bytes // size)
    return storage.start + partition * storage.pitch + free * size


def _byte_strides(storage: LiveStorage, view: View, size: int) -> tuple[int, ...]:
    if not view.buffer.on_chip:
        return tuple([s * size for s in view.strides])
    return (storage.pitch, *[s * size for s in view.strides[1:]])


def _is_low_precision(dtype: DType) -> bool:
    return dtype.is_float and not dtype.is_packed and dtype.itemsize < 4
