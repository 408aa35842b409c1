"""Whether a scheduled program still does what its reference does, whatever its queues do: decided by trying.

Two instructions whose order matters are out of order if the later one can start although the earlier one never
completes; that is found by letting the queues run without it. If everything that matters is in order, the order of the
block stands for all others, and a byte that is read must come from the same instruction as in the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nki.core.tensor import MemoryRegion
from nki.spec.program import Block, Issued, Program, Sync
from nki.spec.queue import fits
from nki.target.load import load_target
from tests.fuzz.bytes_touched import Access, Touches, touches

Key = tuple[int, ...]
"""An instruction, and the trips of the loops around it."""


@dataclass(frozen=True)
class Segment:
    """Instructions between two loops; `sync` is empty before scheduling."""

    walk: int
    items: list[Issued]
    sync: list[Sync]


def segments(program: Program) -> list[Segment]:
    """All segments in the order of the walk."""
    found: list[Segment] = []
    position = 0

    def of(block: Block) -> None:
        nonlocal position
        current = Segment(position, [], [])
        for number, item in enumerate(block.items):
            if isinstance(item, Issued):
                current.items.append(item)
                sync = block.sync[number] if block.sync else None
                if sync is not None:
                    current.sync.append(sync)
                position += 1
                continue
            found.append(current)
            of(item.body)
            current = Segment(position, [], [])
        found.append(current)

    of(program.body)
    return [segment for segment in found if segment.items]


class Reference:
    """A program as it was traced: its order counts, and each of its tensors has memory of its own."""

    def __init__(self, program: Program) -> None:
        self._program = replace(program, placement=None)
        self._segments = segments(program)
        wanted = set(program.edges)
        wanted |= {(k, k + 1) for first, after in program.fences for k in range(first, after - 1)}
        self._pairs = [_pairs(self._program, segment) for segment in self._segments]
        for pairs, segment in zip(self._pairs, self._segments, strict=True):
            for producer, consumer in wanted:
                if segment.walk <= producer and consumer < segment.walk + len(segment.items):
                    pairs.setdefault(producer - segment.walk, []).append(consumer - segment.walk)
        self._sources = sources(self._program)

    def fault(self, scheduled: Program) -> str:
        """How a scheduled program can go wrong, or "" if it cannot."""
        target = load_target(scheduled.target)
        for wanted, own, segment in zip(self._pairs, self._segments, segments(scheduled), strict=True):
            if len(segment.sync) < len(segment.items):
                return "unscheduled"
            if not all(fits(i, s.queue, target) for i, s in zip(segment.items, segment.sync, strict=True)):
                return "in the queue of another engine"
            if len(started(segment.sync, None)) < len(segment.items):
                return "stuck"
            place = {id(issued): position for position, issued in enumerate(segment.items)}
            new = [place[id(issued)] for issued in own.items]
            pairs = _pairs(scheduled, segment)
            for earlier, later in wanted.items():
                pairs.setdefault(new[earlier], []).extend(new[number] for number in later)
            for earlier, needed in pairs.items():
                for number in started(segment.sync, earlier).intersection(needed):
                    one, other = segment.items[earlier], segment.items[number]
                    return f"{_name(other, number)} may start before {_name(one, earlier)} has completed"
        return "" if sources(scheduled) == self._sources else "something is read that another instruction wrote"


def _name(issued: Issued, position: int) -> str:
    return f"{issued.instruction.name} {position}"


def _pairs(program: Program, segment: Segment) -> dict[int, list[int]]:
    """Of a segment of a program: which instructions after each one share something with it."""
    pairs: dict[int, list[int]] = {}
    all_touches = [touches(issued, program) for issued in segment.items]
    for later, b in enumerate(all_touches):
        for earlier in range(later):
            if all_touches[earlier].conflicts(b):
                pairs.setdefault(earlier, []).append(later)
    return pairs


def started(syncs: Sequence[Sync], hanging: int | None) -> set[int]:
    """Which instructions start if one of them never completes."""
    queues: dict[str, list[int]] = {}
    for position, sync in enumerate(syncs):
        queues.setdefault(sync.queue, []).append(position)
    begun: set[int] = set()
    given = dict.fromkeys(queues, 0)
    moving = True
    while moving:
        moving = False
        for left in queues.values():
            while left and all(given.get(queue, 0) >= count for queue, count in syncs[left[0]].waits):
                position = left[0]
                if position in begun:
                    break
                begun.add(position)
                moving = True
                if position == hanging:
                    break
                given[syncs[position].queue] += syncs[position].signals
                left.pop(0)
    return begun


def sources(program: Program) -> dict[Key, list[Any]]:
    """Who wrote what each instruction reads, byte by byte, in the order of the block; loops make two trips."""
    seen: dict[int, Touches] = {}
    for issued in program.body.walk():
        seen[id(issued)] = touches(issued, program)
    atoms = _atoms([a for t in seen.values() for a in (*t.reads, *t.writes)])
    memory: dict[Any, list[tuple[Key, Access]]] = {}
    found: dict[Key, list[Any]] = {}
    for key, issued in _executed(program.body, ()):
        touched = seen[id(issued)]
        found[key] = [_writers(access, memory.get(access.space, ()), atoms) for access in touched.reads]
        for access in touched.writes:
            memory.setdefault(access.space, []).append((key, access))
    kept = [b.id for b in program.inputs] + [view.buffer.id for view in program.outputs]
    kept += [b.id for b in program.body.all_buffers() if b.region is MemoryRegion.shared_hbm]
    for space in kept:
        everything = Access(space, 1, -1, 0, True)
        found[-1, space] = [_writers(everything, memory.get(space, ()), atoms)]
    return found


def _executed(block: Block, trips: Key) -> Iterator[tuple[Key, Issued]]:
    for item in block.items:
        if isinstance(item, Issued):
            yield (id(item), *trips), item
        else:
            for trip in range(2):
                yield from _executed(item.body, (*trips, trip))


def _atoms(accesses: Sequence[Access]) -> list[int]:
    """Sets of partitions (as bits) such that every access has all of a set or nothing of it."""
    atoms = [(1 << 128) - 1]
    for bits in {access.partitions for access in accesses}:
        atoms = [part for atom in atoms for part in (atom & bits, atom & ~bits) if part]
    return atoms


def _writers(access: Access, history: Sequence[tuple[Key, Access]], atoms: Sequence[int]) -> frozenset[Any]:
    """Who wrote which of these bytes last, counted from the start of the tensor; dynamic writes may have."""
    found = set()
    for atom in atoms:
        left = access.mask if atom & access.partitions else 0
        for key, written in reversed(history):
            if not left:
                break
            hit = left & written.mask if atom & written.partitions else 0
            if hit:
                found.add((key, atom, hit >> access.base))
                if written.exact:
                    left &= ~written.mask
        if left:
            found.add((None, atom, left >> access.base))
    return frozenset(found)
