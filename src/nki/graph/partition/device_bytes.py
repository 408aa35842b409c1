"""Which bytes of a tensor in device memory a program reads and writes, so that two programs can be compared."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.analysis.footprints import Accesses, Footprint
from nki.spec.program import Issued, Program
from nki.target.model import Target


class Marks:
    """A set of bytes, from the start of a tensor; what a dynamic index may choose among counts as a whole.

    Attributes:
        low, high: first byte, and one more than the last one.
        bits: of all bytes from 0 to before `high`, packed; None if all bytes from `low` on are in the set.
    """

    __slots__ = ("bits", "high", "low")

    def __init__(self, low: int, high: int, bits: np.ndarray | None) -> None:
        self.low, self.high, self.bits = low, high, bits

    @classmethod
    def of(cls, footprints: Iterable[Footprint]) -> Marks | None:
        """The bytes of footprints of one tensor; None if there are none."""
        found = dict.fromkeys(footprints)
        if not found:
            return None
        high = max(footprint.high for footprint in found)
        low = min(footprint.low for footprint in found)
        if any(footprint.low == low and footprint.high == high and not footprint.dims for footprint in found):
            return cls(low, high, None)
        flags = np.zeros(high, np.bool_)
        for footprint in found:
            shape = (*(count for _, count in footprint.dims), footprint.run)
            strides = (*(stride for stride, _ in footprint.dims), 1)
            np.lib.stride_tricks.as_strided(flags[footprint.low :], shape, strides)[...] = True
        return cls(low, high, None if flags[low:].all() else np.packbits(flags))

    @classmethod
    def whole(cls, nbytes: int) -> Marks:
        """All bytes of a tensor."""
        return cls(0, nbytes, None)

    def meets(self, other: Marks) -> bool:
        """Whether a byte is in both sets."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low >= high:
            return False
        mine, others = self._between(low, high), other._between(low, high)
        if mine is None or others is None:
            rest = others if mine is None else mine
            return True if rest is None else bool(rest.any())
        return bool((mine & others).any())

    def _between(self, low: int, high: int) -> np.ndarray | None:
        """Flags of a range of bytes; None for all of them."""
        if self.bits is None:
            return None
        start = low // 8
        return np.unpackbits(self.bits[start : -(-high // 8)])[low - start * 8 : high - start * 8]


def marks(program: Program, buffers: Iterable[Buffer], target: Target) -> dict[int, tuple[Marks | None, Marks | None]]:
    """The bytes that a program reads, and writes, of tensors in device memory, by the tensor's id."""
    accesses = Accesses(program, target)
    found: dict[int, tuple[list[Footprint], list[Footprint]]] = {buffer.id: ([], []) for buffer in buffers}
    for issued in program.body.walk():
        for view, reads, writes in touched(issued):
            entry = found.get(view.buffer.id)
            if entry is not None:
                footprint = accesses.footprint(view)
                if reads:
                    entry[0].append(footprint)
                if writes:
                    entry[1].append(footprint)
    return {number: (Marks.of(reads), Marks.of(writes)) for number, (reads, writes) in found.items()}


def touched(issued: Issued) -> Iterable[tuple[View, bool, bool]]:
    """The views of an instruction in device memory, and whether each is read and written; its indices are read."""
    for name, view in issued.views():
        operand = issued.instruction.operands[name]
        if view.buffer.region is not MemoryRegion.sbuf and view.buffer.region is not MemoryRegion.psum:
            yield view, operand.reads, operand.writes
        indices = view.dynamic.indices if view.dynamic is not None else None
        if isinstance(indices, View) and not indices.on_chip:
            yield indices, True, False
