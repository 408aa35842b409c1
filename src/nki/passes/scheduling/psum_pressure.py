"""PSUM while instructions are put into an order: which tensors it holds, so that the order needs no more than there is.

Eight banks are few. An order that begins a sum for every tile of the result whose operands are there needs dozens of
them, and no address can be found for it; so a tensor begins only when there is room.

That alone can end in a state in which nothing goes on: every bank holds a sum, and each of them waits for a product
that needs a bank first. So tensors that still wait for others when they begin leave room for those: a tensor of rank 0
waits for no other one, a tensor of rank r for some of rank r - 1, and it leaves r times the room of the largest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.analysis.dependences import Segment
from nki.passes.analysis.memory_demand import OnChipMemory, memories
from nki.passes.scheduling.ready_list import NEVER
from nki.spec.program import Issued
from nki.target.model import Target

_HIGHEST = 3
"""Ranks beyond it count as it: more than half of PSUM would stay empty."""
_NOBODY: tuple[int, ...] = ()
_PSUM = MemoryRegion.psum


class Needs(NamedTuple):
    """What the instructions of a segment need of PSUM; tensors by number.

    Attributes:
        room: bytes of each partition.
        touches: for each instruction the tensors that it touches.
        sizes: bytes of each partition that each tensor takes.
        ranks: of each tensor, see above.
    """

    room: int
    touches: Sequence[tuple[int, ...]]
    sizes: Sequence[int]
    ranks: Sequence[int]


def psum_needs(
    segments: Sequence[Segment], producers: Sequence[Sequence[Sequence[int]]], target: Target
) -> list[Needs | None]:
    """What the segments of a program need of PSUM; None for those that begin no tensor there that gets an address.

    A tensor that several segments use, or the loops between them, keeps its room in all of them.

    Args:
        segments: all of the program.
        producers: for each segment, for each instruction the positions of those that it waits for.
        target: of the program.
    """
    _, memory = memories(target)
    touched = [[_tensors(issued) for issued in segment.items] for segment in segments]
    homes: dict[int, set[int]] = {}
    buffers: dict[int, Buffer] = {}
    for number, instructions in enumerate(touched):
        for mine in instructions:
            for buffer in mine:
                homes.setdefault(buffer.id, set()).add(number)
                buffers[buffer.id] = buffer
    shared = sum(memory.size(buffers[name]) for name, places in homes.items() if len(places) > 1)
    own = {name for name, places in homes.items() if len(places) == 1 and buffers[name].address is None}
    explicit = sum(memory.size(buffer) for buffer in buffers.values() if buffer.address is not None)
    room = memory.limit - shared - explicit
    return [
        _needs([[b for b in mine if b.id in own] for mine in instructions], before, memory, room)
        for instructions, before in zip(touched, producers, strict=True)
    ]


def _tensors(issued: Issued) -> list[Buffer]:
    """The tensors in PSUM that an instruction touches."""
    arguments = issued.arguments
    found: list[Buffer] = []
    for position, _ in issued.instruction.tensor_positions:
        value = arguments[position]
        for view in (value,) if type(value) is View else value if type(value) is tuple else ():
            buffer = view.buffer
            if buffer.region is _PSUM and buffer not in found:
                found.append(buffer)
    return found


def _needs(
    touched: Sequence[Sequence[Buffer]], producers: Sequence[Sequence[int]], memory: OnChipMemory, room: int
) -> Needs | None:
    number: dict[int, int] = {}
    sizes: list[int] = []
    for mine in touched:
        for buffer in mine:
            if buffer.id not in number:
                number[buffer.id] = len(sizes)
                sizes.append(memory.size(buffer))
    if not sizes or max(sizes) > room:
        return None
    touches = [tuple(number[buffer.id] for buffer in mine) for mine in touched]
    return Needs(room, touches, sizes, _ranks(touches, producers, len(sizes)))


def _ranks(touches: Sequence[tuple[int, ...]], producers: Sequence[Sequence[int]], count: int) -> list[int]:
    """Ranks from the sets of tensors, as bits, that lie before each instruction."""
    # Sets of tensors are bits of one integer: a dependence costs one `|`, however many tensors lie before it.
    before: list[int] = []
    begins, ends = [0] * count, [0] * count
    for mine, needs in zip(touches, producers, strict=True):
        found = 0
        for producer in needs:
            found |= before[producer]
        for tensor in mine:
            if not begins[tensor]:
                begins[tensor] = found | 1 << tensor
            found |= 1 << tensor
        before.append(found)
        for tensor in mine:
            ends[tensor] |= found
    waits = [end & ~begin for begin, end in zip(begins, ends, strict=True)]
    ranks = [0] * count
    high = (1 << count) - 1  # those of the highest rank so far
    for rank in range(1, _HIGHEST + 1):
        higher = [number for number, others in enumerate(waits) if others & high]
        high = sum(1 << number for number in higher)
        for number in higher:
            ranks[number] = rank
    return ranks


class Banks:
    """What is free while a schedule is made; an instruction that begins a tensor asks before it starts.

    Those that find no room wait here, for each rank the most urgent one first.
    """

    def __init__(self, needs: Needs, spare: int) -> None:
        """All of it is free.

        Args:
            needs: of the segment.
            spare: for each rank, how many of the largest tensors shall find room.
        """
        self._needs = needs
        unit = max(needs.sizes) * spare
        self._least = [size + rank * unit for size, rank in zip(needs.sizes, needs.ranks, strict=True)]
        self._free = needs.room
        self._later: list[tuple[float, int]] = []
        self._begun = [False] * len(needs.sizes)
        self._begins = False  # since somebody was named
        self._left = [0] * len(needs.sizes)
        self._waiting: list[list[tuple[float, int]]] = [[] for _ in range(_HIGHEST + 1)]
        for mine in needs.touches:
            for tensor in mine:
                self._left[tensor] += 1

    def begin(self, position: int, now: float, urgency: float) -> float:
        """Ask for the tensors of an instruction: `now`, or when there is room, or never as things stand.

        One that is told never waits here until `end` names it.
        """
        needs = self._needs
        touched = needs.touches[position]
        if not touched or (len(touched) == 1 and self._begun[touched[0]]):
            return now
        wanted = [tensor for tensor in touched if not self._begun[tensor]]
        if not wanted:
            return now
        least = max([self._least[tensor] for tensor in wanted])
        size = sum([needs.sizes[tensor] for tensor in wanted])
        later = self._later
        while later and later[0][0] <= now:
            self._free += heappop(later)[1]
        missing = max(least, size) - self._free
        if missing > 0:
            # When scheduled instructions give room back is known: one that waits for that asks again by itself.
            for when, freed in sorted(later):
                missing -= freed
                if missing <= 0:
                    return when
            rank = max([needs.ranks[tensor] for tensor in wanted])
            heappush(self._waiting[rank], (-urgency, position))
            return NEVER
        self._free -= size
        for tensor in wanted:
            self._begun[tensor] = True
        self._begins = True
        return now

    def end(self, position: int, when: float) -> Sequence[int]:
        """An instruction ends; returns those that may ask again: the most urgent one of each rank."""
        touched = self._needs.touches[position]
        if not touched:
            return _NOBODY
        freed, left = 0, self._left
        for tensor in touched:
            left[tensor] -= 1
            if not left[tensor]:
                freed += self._needs.sizes[tensor]
        if freed:
            heappush(self._later, (when, freed))
        # Without bytes that are freed, one that waits may still go on: its tensor may have been begun by another one.
        elif not self._begins:
            return _NOBODY
        self._begins = False
        return [heappop(waiting)[1] for waiting in self._waiting if waiting]
