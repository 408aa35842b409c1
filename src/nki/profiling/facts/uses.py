"""Who reads what which instruction wrote: whole tiles on chip, from one writing to the next."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from math import prod
from typing import NamedTuple

from nki.core.tensor import View
from nki.profiling.facts.timed_core import CoreFacts, segments


class Use(NamedTuple):
    """An instruction that reads a tile as the operand `name`."""

    position: int
    name: str
    view: View


class Uses:
    """Results that are written by one instruction and read before anybody else writes to them."""

    def __init__(self, core: CoreFacts) -> None:
        self._core = core
        self._readers: dict[int, list[Use]] = {}
        self._writes: dict[int, list[int]] = defaultdict(list)
        shared = self._shared() if core.line.loops else set()
        writer: dict[int, int] = {}
        for at, issued in enumerate(core.items):
            operands = issued.instruction.operands
            for name, view in issued.views():
                number = view.buffer.id
                if operands[name].reads and number in writer:
                    self._readers[writer[number]].append(Use(at, name, view))
            for view in issued.written():
                number = view.buffer.id
                self._writes[number].append(at)
                whole = view.dynamic is None and prod(view.shape) * view.dtype.itemsize == view.buffer.nbytes
                if number in writer and not whole:
                    self._readers.pop(writer.pop(number), None)
                elif whole and view.buffer.on_chip and number not in shared and self._alone(at):
                    writer[number] = at
                    self._readers[at] = []
                else:
                    writer.pop(number, None)

    def _alone(self, at: int) -> bool:
        """Whether an instruction writes one tensor and touches nothing else."""
        issued = self._core.items[at]
        return len(list(issued.written())) == 1 and "accumulate" not in issued.instruction.operands

    def _shared(self) -> set[int]:
        """Tiles that more than one segment touches, so that a trip may read what the trip before it wrote."""
        first: dict[int, int] = {}
        found: set[int] = set()
        for number, segment in enumerate(segments(self._core.plan.body)):
            for issued in segment.items:
                operands = issued.instruction.operands
                for name, view in issued.views():
                    known = first.setdefault(view.buffer.id, number if not operands[name].reads else -1)
                    if known != number:
                        found.add(view.buffer.id)
        return found

    def of(self, position: int) -> list[Use]:
        """Who reads the result of an instruction; empty if that is not known."""
        return self._readers.get(position, [])

    def kept(self, view: View, first: int, last: int) -> bool:
        """Whether nobody writes to a tensor between two positions."""
        writes = self._writes[view.buffer.id]
        at = bisect_left(writes, first + 1)
        return at == len(writes) or writes[at] >= last
