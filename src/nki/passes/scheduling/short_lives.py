"""Short lives: what fills a tensor runs right before its first reader, and what stores one right after its last writer.

Kernels of the first NKI fill, load and zero tile after tile, compute with all of them, and store result after result at
the end: their compiler brought the two ends of each life together. Nothing else moves, so that the order stays near to
the one that was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nki.core.tensor import View
from nki.passes.analysis.dependences import Segment, dependences, segments_of
from nki.passes.editing.reorder import NewOrder, reordered
from nki.spec.program import Issued, Program
from nki.target.model import Target


def with_short_lives(program: Program, target: Target) -> Program | None:
    """The program with its fills as late and its stores as early as the dependences of their segment allow.

    None if that is where they are. Every dependence is kept, those of the kernel's own schedule included: the program
    computes the same bytes.
    """
    bare = replace(program, placement=None)
    orders = {
        (id(segment.block), segment.first): NewOrder(segment.walk, _Order(segment, bare, target).made(), None)
        for segment in segments_of(bare)
    }
    moved = any(list(new.order) != list(range(len(new.order))) for new in orders.values())
    return reordered(bare, orders) if moved else None


class _Order:
    """A segment that is put into another order, in one walk over it."""

    def __init__(self, segment: Segment, program: Program, target: Target) -> None:
        items = segment.items
        self._producers = dependences(items, program, target, segment.edges, segment.fences)
        self._fills = [_only_fills(issued) for issued in items]
        self._stores_of: list[list[int]] = [[] for _ in items]
        self._waits = [len(producers) for producers in self._producers]
        for position, producers in enumerate(self._producers):
            if _only_stores(items[position]):
                for producer in producers:
                    self._stores_of[producer].append(position)
        self._placed = bytearray(len(items))
        self._order: list[int] = []

    def made(self) -> Sequence[int]:
        """All positions of the segment."""
        last = self._last_fills()
        for position in range(len(self._placed)):
            if not self._fills[position] or position in last:
                self._place(position)
        return self._order

    def _last_fills(self) -> set[int]:
        """Fills that no instruction waits for stay where they are."""
        awaited = {producer for producers in self._producers for producer in producers}
        return {position for position, fills in enumerate(self._fills) if fills and position not in awaited}

    def _place(self, wanted: int) -> None:
        """An instruction, behind the fills that it waits for, and the stores that waited for it alone behind it."""
        stack = [wanted]
        while stack:
            position = stack[-1]
            if self._placed[position]:
                stack.pop()
                continue
            missing = [producer for producer in self._producers[position] if not self._placed[producer]]
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            self._placed[position] = 1
            self._order.append(position)
            for store in self._stores_of[position]:
                self._waits[store] -= 1
                if not self._waits[store]:
                    stack.append(store)


def _only_fills(issued: Issued) -> bool:
    """Whether all that an instruction does is to write on chip, from nothing or from device memory."""
    views = [*issued.views()]
    if not views or any(view.dynamic is not None for _, view in views):
        return False
    written = {id(view) for view in issued.written()}
    on_chip = all(view.buffer.on_chip == (id(view) in written) for _, view in views)
    return on_chip and bool(written) and not issued.instruction.effects(issued.arguments)


def _only_stores(issued: Issued) -> bool:
    """Whether all that an instruction does is to copy from the chip to device memory."""
    views: list[tuple[str, View]] = [*issued.views()]
    if not views or any(view.dynamic is not None for _, view in views):
        return False
    written = {id(view) for view in issued.written()}
    off_chip = all(view.buffer.on_chip != (id(view) in written) for _, view in views)
    return off_chip and bool(written) and not issued.instruction.effects(issued.arguments)
