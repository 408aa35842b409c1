"""Where the next kernel works on chip: beside the one before it, so that its loads need not wait for that to end.

A kernel's tensors move together, by whole units, and its transfers to other queues, in the same order. Kernels with
explicit addresses stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from nki.core.tensor import Buffer, MemoryRegion
from nki.spec.program import Block, Issued, Program
from nki.spec.queue import by_dma, dma_queues
from nki.target.model import Target

_UNIT = 256
"""Bytes of a partition that tensors in SBUF move by."""


class Shift(NamedTuple):
    """Where a kernel goes: bytes that are added in SBUF and PSUM, and other queues for its transfers."""

    sbuf: int
    psum: int
    queues: Mapping[str, str]

    def place(self, buffer: Buffer, place: tuple[int, int]) -> tuple[int, int]:
        """The new place of a tensor."""
        return place[0], place[1] + (self.psum if buffer.region is MemoryRegion.psum else self.sbuf)


class Room:
    """Goes round the memories on chip and the queues for transfers; collectives have the last queue to themselves."""

    def __init__(self, target: Target, collectives: bool) -> None:
        self._queues = dma_queues(target)
        self._reserved = 1 if collectives else 0
        self._sizes = {
            MemoryRegion.sbuf: target.sbuf.usable_bytes_per_partition,
            MemoryRegion.psum: target.psum.bytes_per_partition,
        }
        self._units = {MemoryRegion.sbuf: _UNIT, MemoryRegion.psum: target.psum.bank_bytes}
        self._next = {MemoryRegion.sbuf: 0, MemoryRegion.psum: 0}
        self._queue = 0

    def next(self, program: Program) -> Shift:
        """Where a kernel goes that comes after those that were asked about before."""
        sbuf, psum = (self._start(program, region) for region in (MemoryRegion.sbuf, MemoryRegion.psum))
        meets = set(_queues(program.body, _meets))
        used = sorted(set(_queues(program.body, by_dma)) - meets, key=self._queues.index)
        count = max(len(self._queues) - self._reserved, len(used))
        moved = {queue: self._queues[(self._queue + number) % count] for number, queue in enumerate(used)}
        self._queue = (self._queue + len(used)) % count
        return Shift(sbuf, psum, moved | dict.fromkeys(meets, self._queues[-1]))

    def _start(self, program: Program, region: MemoryRegion) -> int:
        buffers = [buffer for buffer in program.body.all_buffers() if buffer.region is region]
        placement = program.placement or {}
        if not buffers or any(buffer.id not in placement for buffer in buffers):
            return 0
        unit = self._units[region]
        first = min(placement[buffer.id][1] for buffer in buffers) // unit * unit
        after = -(-max(placement[buffer.id][1] + buffer.row_bytes for buffer in buffers) // unit) * unit
        start = self._next[region]
        if start + after - first > self._sizes[region]:
            start = 0
        self._next[region] = start + after - first
        return start - first


def _queues(block: Block, chosen: Callable[[Issued], bool]) -> Iterator[str]:
    """Queues of some instructions of a block and of the loops in it."""
    for item, sync in zip(block.items, block.sync or (), strict=True):
        if not isinstance(item, Issued):
            yield from _queues(item.body, chosen)
        elif sync is not None and chosen(item):
            yield sync.queue


def _meets(issued: Issued) -> bool:
    return "ranks" in issued.instruction.effects(issued.arguments)
