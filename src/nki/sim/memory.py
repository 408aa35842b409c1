"""Real bytes for every buffer, with poison for what was never written."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from ctypes import addressof, c_char

import numpy as np

from nki.core.dtypes import DType
from nki.core.errors import ExecutionError, TensorError
from nki.core.numerics import to_f32
from nki.core.tensor import Buffer, MemoryRegion, Storage, View
from nki.sim.arena import Arena, new_arena
from nki.sim.pieces import Pieces
from nki.sim.unwritten import fill_unwritten, unwritten_shadow
from nki.sim.window import Window
from nki.spec.program import Program
from nki.target.model import Target

_LIMIT_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_MOST_WINDOWS = 1 << 13
_PAGE = 4096
"""Bytes of a page."""
_ALIGNED = 1 << 20
"""Bytes from which memory of a tensor begins at a page."""


class LiveStorage(Storage):
    """Bytes of one buffer.

    Attributes:
        address: of the first byte of `base`.
        base: contiguous uint8 memory that holds them, possibly shared with other buffers.
        pitch, start: byte ``p * pitch + start + b`` of `base` is byte b of partition p.
        written: bool per byte, or None once everything was written. Nothing becomes unwritten.
        note_pitch, note_start: the same for `written`; a buffer that the compiler placed has notes of its own, because
            others are in the same bytes before and after it.
        overlaid: other buffers may have left their bytes here, so that there is no poison to read; see `as_seen`.
        fresh: nothing was written or read yet; poison and `written` are made when they can first be seen (`settle`).
        uninitialized: what unwritten bytes show, "sentinel" or "zero".
        unmarked: bytes that must at least be written before all can be; counts down to a look at `written`.
        pieces: as long as it is fresh, what was written all the same, if that is a few boxes.
        psum_state: uint8 per byte of a PSUM buffer: 0 never written, 1 by a matmul, 2 by another engine; None in other
            memories, and as long as `psum_whole` says it all.
        psum_whole: ``(state, size)`` if every size-th byte has this state and the others 0, else None.
        psum_pieces: the boxes of which `psum_whole` is true, if there are any; the other bytes have state 0.
        stated: the windows whose `state` is known.
        shadow: float32 values ``(partitions, elements)`` in place of the rounded ones, or None.
        windows: by view, what was worked out before.
    """

    __slots__ = (
        "address",
        "base",
        "fresh",
        "note_pitch",
        "note_start",
        "overlaid",
        "pieces",
        "pitch",
        "psum_pieces",
        "psum_state",
        "psum_whole",
        "shadow",
        "start",
        "stated",
        "uninitialized",
        "unmarked",
        "windows",
        "written",
    )

    def __init__(
        self, buffer: Buffer, base: np.ndarray, pitch: int, start: int, written: np.ndarray | None, fresh: bool = False
    ) -> None:
        self.buffer = buffer  # what `Storage` sets as well: every call makes some of these
        self.array = self.base = base
        self.address = address_in(base)
        self.pitch = pitch
        self.start = start
        self.written = written
        self.note_pitch = pitch
        self.note_start = start
        self.overlaid = False
        self.fresh = fresh
        self.uninitialized = "sentinel"
        self.unmarked = buffer.nbytes
        self.pieces: Pieces | None = None
        self.psum_pieces: Pieces | None = None
        self.psum_state: np.ndarray | None = None
        self.psum_whole: tuple[int, int] | None = (0, 1) if buffer.region is MemoryRegion.psum else None
        self.stated: list[Window] = []
        self.shadow: np.ndarray | None = None
        self.windows: dict[View, Window] = {}

    def window(self, view: View) -> Window:
        """The window of a static view of this buffer."""
        found = self.windows.get(view)
        if found is None:
            if len(self.windows) >= _MOST_WINDOWS:
                self.windows.clear()
            found = self.windows[view] = Window(view, self.base, self.start, self.pitch)
        return found

    def move(self, old: Arena, new: Arena) -> None:
        """Be at the same address in a memory whose partitions have become longer."""
        partition, byte = divmod(self.start, old.pitch)
        self.base, self.address = new.base, address_in(new.base)
        self.pitch, self.start = new.pitch, partition * new.pitch + byte
        self.note_pitch, self.note_start = self.pitch, self.start
        self.written = None if self.written is None else new.written
        self.windows, self.stated = {}, []

    def settle(self) -> None:
        """Make what was never written visible: the poison, and the note of which bytes are written."""
        if self.fresh:
            self.fresh = False
            pieces = self.pieces
            if not self.overlaid:
                kept = [] if pieces is None else [piece.copy() for piece in self._written_bytes(pieces)]
                fill_unwritten(self.base, self.buffer.dtype, self.uninitialized)
                for piece, bits in zip([] if pieces is None else self._written_bytes(pieces), kept, strict=True):
                    piece[...] = bits
            self.written = np.zeros(self.buffer.nbytes, bool)
            if pieces is not None:
                self.pieces = None
                self.unmarked -= pieces.size()
                for noted in pieces.bytes_in(self.written, self.note_start, pieces.pitch or self.note_pitch):
                    noted[...] = True

    def _written_bytes(self, pieces: Pieces) -> Iterator[np.ndarray]:
        return pieces.bytes_in(self.base, self.start, pieces.pitch or self.pitch)

    def values(self, view: View) -> np.ndarray | None:
        if view.dynamic is not None:
            return None
        shadow = shadow_of(self, view)
        return np.array(strided(self, view) if shadow is None else shadow)


def address_in(base: np.ndarray) -> int:
    """The address of the first byte of a contiguous array."""
    try:
        return addressof(c_char.from_buffer(base))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # read-only, or empty; what follows takes longer, as it makes a dictionary
        address: int = base.__array_interface__["data"][0]
        return address


class Storages:
    """Storages by the ids of their buffers, as long as somebody else keeps them.

    What `weakref.WeakValueDictionary` does takes much longer: it is told of every storage that ends. Here an id keeps
    its place; a program has a record of the buffer anyway.
    """

    __slots__ = ("references",)

    def __init__(self) -> None:
        self.references: dict[int, weakref.ref[LiveStorage]] = {}

    def get(self, number: int) -> LiveStorage | None:
        """The storage of a buffer, if it is still there."""
        reference = self.references.get(number)
        return None if reference is None else reference()

    def __getitem__(self, number: int) -> LiveStorage:
        found = self.get(number)
        if found is None:
            raise KeyError(number)
        return found

    def __setitem__(self, number: int, storage: LiveStorage) -> None:
        self.references[number] = weakref.ref(storage)

    def all(self) -> Iterator[LiveStorage]:
        """All storages that are still there."""
        return (storage for reference in self.references.values() if (storage := reference()) is not None)


class Memory:
    """The memories of one core (SBUF, PSUM) and the HBM buffers that it sees."""

    def __init__(
        self,
        target: Target,
        *,
        precise_fp: bool = True,
        placement: Mapping[int, tuple[int, int]] | None = None,
        reach: Mapping[MemoryRegion, int] | None = None,
        uninitialized: str = "sentinel",
    ) -> None:
        """`placement` says where the compiler put buffers, by id; without one each has bytes of its own.

        `reach` is how many bytes of each partition are used at all; a small kernel does not have to touch more.
        `uninitialized` is what unwritten storage shows, "sentinel" or "zero".
        """
        self._target = target
        self._placement = placement
        self._reach = reach or {}
        self._precise_fp = precise_fp
        self.uninitialized = uninitialized
        self._live = Storages()
        self._arenas: dict[MemoryRegion, Arena] = {}

    def allocate(self, buffer: Buffer) -> LiveStorage:
        """Bytes for a buffer: its own, or, with an address, a window of the real array."""
        address = buffer.address
        if address is None and self._placement is not None:
            address = self._placement.get(buffer.id)
        if address is not None and buffer.on_chip:
            storage = self._place(buffer, address)
        else:
            storage = _own(buffer)
        storage.uninitialized = self.uninitialized
        if not self._precise_fp and _is_low_precision(buffer.dtype):
            storage.shadow = unwritten_shadow(
                (buffer.partitions, buffer.row_bytes // buffer.dtype.itemsize), self.uninitialized
            )
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

    def forget(self) -> None:
        """Note the bytes that tensors with an explicit address share as unwritten."""
        for arena in self._arenas.values():
            arena.written[...] = False

    def storage(self, view: View) -> LiveStorage:
        """The live storage behind a view."""
        reference = self._live.references.get(view[0].id)
        found = None if reference is None else reference()
        if found is None:
            raise ExecutionError(
                "memory.freed",
                f"tensor {view.buffer.name!r} has no storage any more",
                fix="keep the tensor alive until its last use",
            )
        return found

    def _place(self, buffer: Buffer, address: tuple[int, int]) -> LiveStorage:
        overlaid = self._placement is not None
        base, written, pitch, _ = self._arena(buffer.region, address[1] + buffer.row_bytes)
        start = address[0] * pitch + address[1]
        if buffer.address is not None:
            storage = LiveStorage(buffer, base, pitch, start, written)
        else:
            storage = LiveStorage(buffer, base, pitch, start, None, fresh=True)
            storage.note_pitch, storage.note_start = buffer.row_bytes, 0
        storage.overlaid = overlaid
        return storage

    def _arena(self, region: MemoryRegion, end: int) -> Arena:
        """The bytes of a memory for a tensor that ends at byte `end` of its partitions.

        That may be past the end of what the target has where `Tracer.exceeded` allowed it. Partitions become longer
        then, and the tensors that are there move.
        """
        arena = self._arenas.get(region)
        if arena is None:
            memory = self._target.psum if region is MemoryRegion.psum else self._target.sbuf
            reach = max(end, self._reach.get(region, memory.bytes_per_partition))
            poison = self.uninitialized if self._placement is None else None
            arena = self._arenas[region] = new_arena(self._target.partitions, reach, poison)
        if end > arena.reach:
            wider = self._arenas[region] = arena.grown(end, self.uninitialized)
            for storage in self._live.all():
                if storage.base is arena.base:
                    storage.move(arena, wider)
            arena = wider
        return arena


def placed_memory(
    program: Program,
    target: Target,
    uninitialized: str = "sentinel",
    precise_fp: bool = True,
    reach: Mapping[MemoryRegion, int] | None = None,
) -> Memory:
    """The memories of one core for a compiled program; `reach` is what `reach_of` says of it, where that is known."""
    return Memory(
        target,
        precise_fp=precise_fp,
        placement=program.placement,
        reach=reach_of(program) if reach is None else reach,
        uninitialized=uninitialized,
    )


def reach_of(program: Program) -> dict[MemoryRegion, int]:
    """How many bytes of each partition a compiled program uses."""
    placement = program.placement or {}
    reach: dict[MemoryRegion, int] = {}
    for buffer in program.body.all_buffers():
        address = buffer.address or placement.get(buffer.id)
        if address is not None and buffer.on_chip:
            reach[buffer.region] = max(reach.get(buffer.region, 0), address[1] + buffer.row_bytes)
    return reach


def _own(buffer: Buffer) -> LiveStorage:
    size = buffer.nbytes
    if 2 * size > _LIMIT_BYTES:  # as much again notes which bytes were written
        raise TensorError(
            "tensor.huge",
            f"{buffer.name or 'the tensor'} has {size} bytes, and twice that is needed",
            rule=f"this machine has {_LIMIT_BYTES} bytes of memory",
            fix="use a smaller shape",
            location=buffer.location,
        )
    if buffer.data is not None:
        return LiveStorage(buffer, np.frombuffer(buffer.data, np.uint8).copy(), buffer.row_bytes, 0, None)
    base = np.empty(size, np.uint8) if size < _ALIGNED else _at_a_page(size)
    return LiveStorage(buffer, base, buffer.row_bytes, 0, None, fresh=True)


def _at_a_page(size: int) -> np.ndarray:
    """`size` bytes, uint8, that begin at a page, so that lines of them can be written past the caches.

    NumPy's own arrays begin some bytes behind a page. What is stored here is not at the same place of a page as what is
    loaded next from such an array, for which a processor would wait.
    """
    found = np.empty(size + _PAGE, np.uint8)
    start = -found.__array_interface__["data"][0] % _PAGE
    return found[start : start + size]


def strided(storage: LiveStorage, view: View) -> np.ndarray:
    """A NumPy view of the elements, without a copy; static addresses only."""
    storage.settle()
    return storage.window(view).bits


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


def _is_low_precision(dtype: DType) -> bool:
    return dtype.is_float and not dtype.is_packed and dtype.itemsize < 4
