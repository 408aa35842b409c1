"""Reordering under pressure: where more is live at once than there is, what ends the lives of tensors moves forward.

A kernel may fill tensor after tensor and empty them only later: what is written does not fit, but the same instructions
do in another order, and reordering them is the compiler's business. The order that was written stays wherever it fits.
Just before an instruction that would begin one tensor too many, the fewest instructions that make room are brought
forward: all remaining uses of a tensor, with everything that they wait for. And once more, step by step: instead of an
instruction that begins a tensor, the one that may run and adds least to what is live.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nki.core.tensor import View
from nki.passes.analysis.dependences import Segment, dependences, segments_of
from nki.passes.analysis.liveness import Range, liveness
from nki.passes.analysis.memory_demand import Demand, demand, memories
from nki.passes.analysis.pressure import load
from nki.passes.editing.reorder import NewOrder, reordered
from nki.spec.program import Issued, Program
from nki.target.model import Target

SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""How much of the memories is filled before something is brought forward, one order for each.

What is live at once may fit, yet not be packed; and what makes room may need room of its own first.
"""
MOST_MOVED = 512
"""Instructions that may be brought forward for one tensor."""
CANDIDATES = 8
"""Tensors of which the one is chosen that needs the fewest."""
READY = 64
"""Instructions that may run, the first ones in the written order, of which the one is chosen that adds least."""
EFFORT = 100
"""Instructions that may be looked at for each one of the crowded segments, on average, for all orders together."""


def orders_under_pressure(program: Program, target: Target) -> Iterator[Program]:
    """The program in orders in which less is live at once, the nearest to the written one first; maybe none.

    Nothing is moved out of its run of instructions between loops, and every dependence is kept, those of the kernel's
    own schedule included: the program computes the same bytes.
    """
    bare = replace(program, placement=None)
    live = liveness(bare)
    needs = [demand(memory, live.buffers) for memory in memories(target)]
    loads = [load(each.items, each.fixed, live.positions) for each in needs]
    runs = list(segments_of(bare))
    crowded = {
        segment.walk: dependences(segment.items, bare, target, segment.edges, segment.fences)
        for segment in runs
        if _is_crowded(segment, needs, loads)
    }
    effort = EFFORT * sum(map(len, crowded.values()))
    seen = set()
    for share in (*SHARES, None):
        orders: dict[tuple[int, int], NewOrder] = {}
        for segment in runs:
            order: Sequence[int] | None = range(len(segment.items))
            if segment.walk in crowded:
                made = _PressureOrder(segment, crowded[segment.walk], needs, share or 1.0, effort)
                order, effort = made.order() if share else made.steps(), made.effort
            if order is None:
                break
            orders[id(segment.block), segment.first] = NewOrder(segment.walk, order, None)
        key = tuple(tuple(new.order) for new in orders.values())
        if len(orders) == len(runs) and key not in seen:
            seen.add(key)
            yield reordered(bare, orders)


def _is_crowded(segment: Segment, needs: Sequence[Demand], loads: Sequence[np.ndarray]) -> bool:
    here = slice(segment.walk, segment.walk + len(segment.items))
    pairs = zip(needs, loads, strict=True)
    return any(bytes_live[here].max() > SHARES[1] * each.memory.limit for each, bytes_live in pairs)


@dataclass(slots=True)
class _Tensor:
    """A tensor that begins or ends in a segment.

    Attributes:
        memory: position in the demands.
        size: bytes of each partition.
        area: partitions of its memory that it would fill.
        users: positions of the segment that use it.
        left: how many of them are still to come.
        live: whether it has begun.
        ends: whether nothing behind the segment needs it.
    """

    memory: int
    size: int
    area: float
    users: list[int]
    left: int
    live: bool
    ends: bool


class _PressureOrder:
    """A segment that is put into an order, instruction by instruction."""

    def __init__(
        self,
        segment: Segment,
        producers: Sequence[tuple[int, ...]],
        needs: Sequence[Demand],
        share: float,
        effort: int,
    ) -> None:
        self.effort = effort
        self._producers = producers
        self._limits = [each.memory.limit for each in needs]
        self._wanted = [int(share * limit) for limit in self._limits]
        self._count = len(segment.items)
        self._placed = bytearray(self._count)
        self._order: list[int] = []
        self._tensors: dict[int, _Tensor] = {}
        own = {buffer.id for buffer in segment.block.buffers}
        self._live = [self._base(number, each, segment.walk, own) for number, each in enumerate(needs)]
        self._begun = {id(tensor): tensor for tensor in self._tensors.values() if tensor.live}
        self._of = [self._used(position, issued) for position, issued in enumerate(segment.items)]

    def _base(self, number: int, needs: Demand, walk: int, own: set[int]) -> int:
        """Bytes that are taken all the time or from the start: all trips of a loop need what is not its own."""
        after, resident, began = walk + self._count, list[Range](), 0
        for live in needs.automatic:
            if live.last < walk or live.first >= after:
                continue
            if live.buffer.id not in own or (live.first < walk and live.last >= after):
                resident.append(live)
                continue
            size, before = needs.memory.size(live.buffer), live.first < walk
            area = size * live.buffer.partitions / needs.memory.limit
            self._tensors[live.buffer.id] = _Tensor(number, size, area, [], 0, before, live.last < after)
            began += size if before else 0
        items = [needs.memory.item(live) for live in resident]
        return began + int(load(items, needs.fixed, after)[walk:].max(initial=0))

    def _used(self, position: int, issued: Issued) -> list[_Tensor]:
        """The tensors of the segment that an instruction uses."""
        used: dict[int, _Tensor] = {}
        for _, view in issued.views():
            chain: View | None = view
            while isinstance(chain, View):
                tensor = self._tensors.get(chain.buffer.id)
                if tensor is not None:
                    used[chain.buffer.id] = tensor
                chain = None if chain.dynamic is None else chain.dynamic.indices  # type: ignore[assignment]
        for tensor in used.values():
            tensor.users.append(position)
            tensor.left += 1
        return list(used.values())

    def order(self) -> list[int] | None:
        """All positions; None where nothing makes room."""
        for position in range(self._count):
            if self._placed[position]:
                continue
            while (memory := self._short(position, self._wanted)) is not None:
                chosen = self._forward(memory)
                for each in chosen:
                    self._place(each)
                if not chosen or self._placed[position]:
                    break
            if not self._placed[position]:
                if self._short(position, self._limits) is not None:
                    return None
                self._place(position)
        return self._order

    def steps(self) -> list[int]:
        """All positions, each the next of the written order unless that begins a tensor and another adds less.

        Limits are not looked at: tensors that lie side by side may fit where they would not one above the other.
        """
        waits = [len(producers) for producers in self._producers]
        consumers: list[list[int]] = [[] for _ in waits]
        for position, producers in enumerate(self._producers):
            for producer in producers:
                consumers[producer].append(position)
        ready = [position for position, count in enumerate(waits) if not count]
        while ready:
            chosen = ready[0]
            if not all(tensor.live for tensor in self._of[chosen]):
                chosen = min(ready[:READY], key=lambda position: (self._adds(position), position))
            del ready[bisect_left(ready, chosen)]
            self._place(chosen)
            for consumer in consumers[chosen]:
                waits[consumer] -= 1
                if not waits[consumer]:
                    insort(ready, consumer)
        return self._order

    def _adds(self, position: int) -> float:
        """How much more of the memories is live behind an instruction than before it."""
        used = self._of[position]
        begun = sum(tensor.area for tensor in used if not tensor.live)
        return begun - sum(tensor.area for tensor in used if tensor.left == 1 and tensor.ends)

    def _short(self, position: int, limits: Sequence[int]) -> int | None:
        """The memory in which an instruction would begin more than it may."""
        live = list(self._live)
        begins = False
        for tensor in self._of[position]:
            if not tensor.live:
                live[tensor.memory] += tensor.size
                begins = True
        if not begins:
            return None
        return next((n for n, (used, limit) in enumerate(zip(live, limits, strict=True)) if used > limit), None)

    def _place(self, position: int) -> None:
        self._placed[position] = 1
        self._order.append(position)
        for tensor in self._of[position]:
            if not tensor.live:
                tensor.live = True
                self._begun[id(tensor)] = tensor
                self._live[tensor.memory] += tensor.size
        for tensor in self._of[position]:
            tensor.left -= 1
            if tensor.left == 0 and tensor.ends:
                del self._begun[id(tensor)]
                self._live[tensor.memory] -= tensor.size

    def _forward(self, memory: int) -> list[int]:
        """Instructions after which less of a memory is live, the fewest for a few tensors; none if there are no such.

        Those are looked at whose last use comes first in the written order, else those with the fewest uses left.
        """
        ending = [tensor for tensor in self._begun.values() if tensor.memory == memory and tensor.ends]
        for order in (lambda tensor: tensor.users[-1], lambda tensor: tensor.left):
            best: list[int] = []
            for tensor in heapq.nsmallest(CANDIDATES, ending, key=order):
                found = self._closure(tensor, len(best) - 1 if best else MOST_MOVED)
                if found and self._gains(found, memory):
                    best = found
            if best or self.effort < 0:
                return best
        return []

    def _closure(self, tensor: _Tensor, most: int) -> list[int] | None:
        """The uses that a tensor still has, and all that they wait for; None if they are too many."""
        found = {user for user in tensor.users if not self._placed[user]}
        stack = list(found)
        while stack and len(found) <= most:
            self.effort -= 1
            for producer in self._producers[stack.pop()]:
                if not self._placed[producer] and producer not in found:
                    found.add(producer)
                    stack.append(producer)
        # Sorted, and so in the written order, in which every dependence holds.
        return sorted(found) if len(found) <= most else None

    def _gains(self, positions: Sequence[int], memory: int) -> bool:
        """Whether instructions fit, and leave less of a memory live than there was before them."""
        live, begun, left = list(self._live), set[int](), dict[int, int]()
        for position in positions:
            self.effort -= 1
            for tensor in self._of[position]:
                if not tensor.live and id(tensor) not in begun:
                    begun.add(id(tensor))
                    live[tensor.memory] += tensor.size
            if any(used > limit for used, limit in zip(live, self._limits, strict=True)):
                return False
            for tensor in self._of[position]:
                left[id(tensor)] = left.get(id(tensor), tensor.left) - 1
                if left[id(tensor)] == 0 and tensor.ends:
                    live[tensor.memory] -= tensor.size
        return live[memory] < self._live[memory]
