"""Gaps: where a buffer waits for its next use, as items of its own block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.analysis.accumulation import adds_to_sum
from nki.passes.analysis.footprints import Accesses
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop


class Change(NamedTuple):
    """What is done to a tensor: whether it is written, and whether a matmul may add to what it holds."""

    writes: bool
    adds: bool = False

    def __or__(self, other: Change) -> Change:
        return Change(self.writes or other.writes, self.adds or other.adds)


_READ = Change(writes=False)


class BlockUse(NamedTuple):
    """An item of a buffer's own block that uses it, with its positions in the walk; a loop is one item."""

    item: int
    first: int
    last: int
    location: Location
    change: Change


class Part(NamedTuple):
    """Partitions and bytes of each of them, half open, as they count from the start of a buffer."""

    first: int
    after: int
    low: int
    high: int

    @property
    def row_bytes(self) -> int:
        return self.high - self.low

    @property
    def nbytes(self) -> int:
        return (self.after - self.first) * self.row_bytes


@dataclass(slots=True)
class TensorUses:
    """A buffer with its block, its uses, all its views, and the ``(position, view)`` of what is surely written."""

    buffer: Buffer
    block: Block
    uses: list[BlockUse] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    written: list[tuple[int, View]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Gap:
    """A tensor after its use `number`, until the next one."""

    tensor: TensorUses
    number: int

    @property
    def start(self) -> int:
        """First position that does not need it."""
        return self.tensor.uses[self.number].last + 1

    @property
    def end(self) -> int:
        """The position that needs it again."""
        return self.tensor.uses[self.number + 1].first

    @property
    def adds_later(self) -> bool:
        """Whether a matmul may add to it after the gap."""
        return any(use.change.adds for use in self.tensor.uses[self.number + 1 :])


def tensors(program: Program, region: MemoryRegion) -> list[TensorUses]:
    """All buffers of a memory without an address, with their uses in program order."""
    finder = _Finder(region)
    finder.block(program.body, True)
    return list(finder.found.values())


def used_part(tensor: TensorUses, accesses: Accesses) -> Part:
    """The smallest part of a tensor outside of which nothing reads or writes it; it begins at partition 0."""
    reached = [accesses.footprint(view) for view in tensor.views]
    rows = max(each.after for each in reached)
    return Part(0, rows, min(each.low for each in reached), max(each.high for each in reached))


def complete_after(tensor: TensorUses, part: Part, accesses: Accesses) -> int | None:
    """The position of the write behind which every byte of a part was certainly written; None if there is none."""
    missing: np.ndarray | None = None
    left = part.nbytes
    for position, view in tensor.written:
        footprint = accesses.footprint(view)
        if not footprint.static or footprint.dims:
            continue
        if (footprint.first, footprint.after, footprint.low, footprint.high) == part:
            return position
        if missing is None:
            missing = np.ones((part.after, part.high), bool)
            missing[:, : part.low] = False
        piece = missing[footprint.first : footprint.after, footprint.low : footprint.high]
        left -= int(piece.sum())
        piece[...] = False
        if not left:
            return position
    return None


class _Finder:
    """One walk over a program that notes the uses of each buffer by the items of its own block."""

    def __init__(self, region: MemoryRegion) -> None:
        self._region = region
        self._position = 0
        self.found: dict[int, TensorUses] = {}

    def block(self, block: Block, sure: bool) -> dict[int, Change]:
        """Note the uses in a block; returns the buffers from outside that it uses, and what it does to them."""
        for buffer in block.buffers:
            if buffer.region is self._region and buffer.address is None:
                self.found[buffer.id] = TensorUses(buffer, block)
        outside: dict[int, Change] = {}
        for number, item in enumerate(block.items):
            first = self._position
            touched = self._item(item, sure)
            # A loop without instructions has a place all the same.
            last = max(first, self._position - 1)
            for key, change in touched.items():
                tensor = self.found[key]
                if tensor.block is block:
                    tensor.uses.append(BlockUse(number, first, last, item.location, change))
                else:
                    outside[key] = outside.get(key, _READ) | change
        return outside

    def _item(self, item: Issued | ForLoop | WhileLoop, sure: bool) -> dict[int, Change]:
        if not isinstance(item, Issued):
            return self.block(item.body, sure and _runs(item))
        touched: dict[int, Change] = {}
        adds = adds_to_sum(item) is not False
        for name, view in item.views():
            if view.dynamic is not None and isinstance(view.dynamic.indices, View):
                self._touch(touched, view.dynamic.indices, _READ, sure)
            writes = item.instruction.operands[name].writes
            self._touch(touched, view, Change(writes, writes and adds), sure)
        self._position += 1
        return touched

    def _touch(self, touched: dict[int, Change], view: View, change: Change, sure: bool) -> None:
        tensor = self.found.get(view.buffer.id)
        if tensor is None:
            return
        touched[view.buffer.id] = touched.get(view.buffer.id, _READ) | change
        tensor.views.append(view)
        if change.writes and sure:
            tensor.written.append((self._position, view))


def _runs(loop: ForLoop | WhileLoop) -> bool:
    """Whether a loop certainly has a trip."""
    if not isinstance(loop, ForLoop) or not isinstance(loop.lower, int) or not isinstance(loop.upper, int):
        return False
    return loop.lower < loop.upper
