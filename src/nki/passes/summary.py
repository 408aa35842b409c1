"""How much on-chip memory a program needs at once: the peak of what is live, per partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nki.core.tensor import Buffer, MemoryRegion
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

Item = Issued | ForLoop | WhileLoop
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Bytes per partition of one core that are in use at the same time, at worst."""

    sbuf: int
    psum: int


@dataclass(frozen=True, slots=True)
class _Live:
    """What is in use: bytes that an allocator may place anywhere, and byte intervals that the kernel placed."""

    anywhere: int = 0
    placed: tuple[Interval, ...] = ()

    @property
    def size(self) -> int:
        return self.anywhere + _covered(self.placed)

    def __add__(self, other: _Live) -> _Live:
        return _Live(self.anywhere + other.anywhere, self.placed + other.placed)


def memory_peak(program: Program) -> MemoryPeak:
    """The most that is live at one instruction of a program.

    A tensor lives from the first to the last item of its block that uses it; a loop is one item, so that a tensor from
    outside that is used in a loop lives during all of it. A tensor takes its bytes of every partition, however few
    partitions it spans. Tensors with an explicit address take their byte interval, once where intervals overlap.
    """
    return MemoryPeak(_peak(program.body, MemoryRegion.sbuf, _Live()), _peak(program.body, MemoryRegion.psum, _Live()))


def _peak(block: Block, region: MemoryRegion, outside: _Live) -> int:
    """The peak during a block while `outside` is live around it."""
    own = {buffer.id: buffer for buffer in block.buffers if buffer.region is region}
    touched = [_touched(item) & own.keys() for item in block.items]
    last = {key: position for position, keys in enumerate(touched) for key in keys}
    live: dict[int, Buffer] = {}
    peak = outside.size
    for position, (item, keys) in enumerate(zip(block.items, touched, strict=True)):
        live.update((key, own[key]) for key in keys)
        if keys or not isinstance(item, Issued):
            now = outside + _sum(live.values())
            peak = max(peak, now.size if isinstance(item, Issued) else _peak(item.body, region, now))
        for key in keys:
            if last[key] == position:
                del live[key]
    return peak


def _sum(buffers: Iterable[Buffer]) -> _Live:
    anywhere, placed = 0, []
    for buffer in buffers:
        if buffer.address is None:
            anywhere += buffer.row_bytes
        else:
            placed.append((buffer.address[1], buffer.address[1] + buffer.row_bytes))
    return _Live(anywhere, tuple(placed))


def _covered(intervals: Iterable[Interval]) -> int:
    """Bytes in the union of the intervals."""
    covered = end = 0
    for first, after in sorted(intervals):
        covered += max(0, after - max(first, end))
        end = max(end, after)
    return covered


def _touched(item: Item) -> set[int]:
    """Ids of the buffers that an instruction, or a loop's body, reads or writes."""
    return {key for issued in ((item,) if isinstance(item, Issued) else item.body.walk()) for key in _used(issued)}


def _used(issued: Issued) -> Iterator[int]:
    for _, view in issued.views():
        yield view.buffer.id
        index = view.dynamic.indices if view.dynamic is not None else None
        if isinstance(index, tuple):
            yield index.buffer.id
