"""Who wrote each byte of a memory last: numbers of instructions, kept for tensors or for whole memories."""

from __future__ import annotations

import numpy as np

from nki.passes.analysis.footprints import Footprint

NOBODY, MAYBE = 0, -1
"""Instead of a number: never written, and perhaps written."""


class Plane:
    """The bytes of a tensor, or of a whole memory: the number of the instruction that wrote each of them last."""

    __slots__ = ("_bytes", "_pending", "_shape")

    def __init__(self, rows: int, pitch: int) -> None:
        self._shape = (rows, pitch)
        self._bytes: np.ndarray | None = None
        self._pending: tuple[Footprint, int] | None = None  # the last write, which is not noted yet

    def writers(self, footprint: Footprint) -> set[int]:
        """Who wrote these bytes last."""
        if self._pending is not None:
            if self._pending[0] is footprint:
                return {self._pending[1]}
            self._note()
        if self._bytes is None:
            return {NOBODY}
        part = self._part(self._bytes, footprint)
        one = int(part[(0,) * part.ndim])
        if bool((part == one).all()):
            return {one}
        first = part[:1]  # mostly all partitions are alike
        return {int(each) for each in np.unique(first if bool((part == first).all()) else part)}

    def write(self, footprint: Footprint, number: int) -> None:
        """Note that an instruction wrote these bytes."""
        if self._pending is not None and self._pending[0] is not footprint:
            self._note()
        self._pending = (footprint, number)

    def everybody(self) -> set[int]:
        """All who wrote something that is still there."""
        if self._pending is not None:
            self._note()
        return set() if self._bytes is None else {int(each) for each in np.unique(self._bytes)}

    def doubt(self) -> None:
        """Note that anything may have been written."""
        self._pending = None
        self._bytes = np.full(self._shape, MAYBE, np.int32)

    def _note(self) -> None:
        assert self._pending is not None, "asked for a pending write"
        (footprint, number), self._pending = self._pending, None
        if self._bytes is None:
            self._bytes = np.zeros(self._shape, np.int32)
        self._part(self._bytes, footprint)[...] = number

    def _part(self, grid: np.ndarray, footprint: Footprint) -> np.ndarray:
        size, pitch = grid.itemsize, grid.strides[0]
        shape = (footprint.after - footprint.first, *(count for _, count in footprint.dims), footprint.run)
        strides = (pitch, *(stride * size for stride, _ in footprint.dims), size)
        return np.ndarray(shape, grid.dtype, grid, footprint.first * pitch + footprint.low * size, strides)
