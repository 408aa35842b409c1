"""Packing: offsets for intervals of time, so that no two share a byte while both live."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nki.passes.analysis.live_intervals import Fixed, Item, Room

Byte = tuple[int, int]
"""First byte, and the byte after the last one."""

SLICE = 32
"""Intervals that begin in one slice of the axis; neighbours in time are looked up by slice."""

ATTEMPTS = 4
"""Orders that are tried for the tightest result; the others only count if none of these fits."""

CLIMBS = 48
"""Most attempts that begin with what did not fit, if no order fits though what is live at once would."""

CLIMBED = 100_000
"""Items that these attempts place in total, or so."""


class Packing(NamedTuple):
    """Offsets in the order of the items, and the byte after the last one of an item."""

    offsets: tuple[int, ...]
    peak: int


Order = Sequence[int]
Choice = Callable[[list[Byte], Item, "_Field"], int]


def pack_rotating(items: Sequence[Item], fixed: Sequence[Fixed], room: Room) -> Packing | None:
    """Each item behind the one before it, round and round, so that bytes rest long before they are used again.

    None if it does not fit that way: long-lived items that were spread out leave no hole for a large one.
    """
    field = _Field(items, fixed, room)
    by_span = sorted(range(len(items)), key=lambda n: (-field.level(n), items[n].first, -items[n].size))
    if field.place(by_span, _next):
        return field.packing()
    # Spread out, long-lived items left no hole: now they lie at the bottom, and only items of one slice go round.
    field.clear()
    long = [n for n in by_span if field.level(n)]
    long.sort(key=lambda n: (-field.level(n), -items[n].size, items[n].first))
    if field.place(long, _lowest) and field.place([n for n in by_span if not field.level(n)], _next):
        return field.packing()
    return None


def pack_tight(items: Sequence[Item], fixed: Sequence[Fixed], room: Room, bound: int) -> Packing:
    """Pack as low as possible: the best of several orders, or the first that reaches `bound`.

    No packing has a peak below `bound`. The peak may exceed the limit of the room: then nothing that was tried fits.
    """
    field = _Field(items, fixed, room._replace(limit=_ENDLESS))
    best, best_order = Packing((), _ENDLESS), list[int]()
    for number, order in enumerate(field.orders()):
        if best.peak <= bound or (number >= ATTEMPTS and best.peak <= room.limit):
            return best
        packing = field.packed(order)
        if packing.peak < best.peak:
            best, best_order = packing, order
    return best if best.peak <= room.limit or bound > room.limit else _climb(field, best_order, best, room.limit)


def _climb(field: _Field, order: list[int], best: Packing, limit: int) -> Packing:
    """What did not fit goes first the next time, until everything fits or nothing helps."""
    packing = best
    for _ in range(min(CLIMBS, 1 + CLIMBED // len(order))):
        over = [n for n in order if packing.offsets[n] + field.items[n].size > limit]
        if not over:
            break
        first = set(over)
        # The others keep their order, so that an attempt differs from the last one only in what lacked room.
        order = [*over, *(n for n in order if n not in first)]
        packing = field.packed(order)
        best = min(best, packing, key=lambda each: each.peak)
    return best


_ENDLESS = 1 << 62


class _Field:
    """What is placed so far, in slices of the axis, so that only neighbours in time are looked at."""

    def __init__(self, items: Sequence[Item], fixed: Sequence[Fixed], room: Room) -> None:
        self.items = items
        self.room = room
        self.pointer = 0
        both: list[Item | Fixed] = [*items, *fixed]
        births = sorted({each.first for each in both})
        place = {first: number for number, first in enumerate(births)}
        # On an axis of births two intervals overlap if and only if they overlap in time, and no part of it is empty.
        firsts = [place[each.first] for each in both]
        lasts = [bisect_right(births, each.last) - 1 for each in both]
        self._first, self._last = firsts[: len(items)], lasts[: len(items)]
        # About SLICE items begin in a slice: what a look-up costs does not grow with the program, but for items that
        # span many slices.
        self._width = max(1, len(births) * SLICE // max(1, len(both)))
        self._count = len(births) // self._width + 1
        self._fixed: list[list[tuple[int, int, int, int, int, int]]] = [[] for _ in range(self._count)]
        for each, first, last in zip(fixed, firsts[len(items) :], lasts[len(items) :], strict=True):
            for number in range(first // self._width, last // self._width + 1):
                self._fixed[number].append((first, last, each.start, each.end, each.partition, each.partition_end))
        self.clear()

    def clear(self) -> None:
        """Take everything away that was placed."""
        self.pointer = 0
        self._offsets = [-1] * len(self.items)
        self._slices: list[list[list[tuple[int, int, int, int]]]] = [
            [[] for _ in range(self._count)] for _ in range(2 if self.room.half else 1)
        ]

    def sides(self, item: Item) -> tuple[int, ...]:
        """The halves of the partitions that an item lies in."""
        half = self.room.half
        if not half or item.start + item.partitions <= half:
            return (0,)
        return (1,) if item.start >= half else (0, 1)

    def level(self, number: int) -> int:
        """0 for an item that lives in one slice, and one more for each time it spans twice as many."""
        return (self._last[number] // self._width - self._first[number] // self._width).bit_length()

    def packed(self, order: Order) -> Packing:
        """All items placed from the bottom in an order."""
        self.clear()
        self.place(order, _lowest)
        return self.packing()

    def packing(self) -> Packing:
        """What is placed."""
        ends = (offset + item.size for offset, item in zip(self._offsets, self.items, strict=True))
        return Packing(tuple(self._offsets), max(ends, default=0))

    def place(self, order: Order, choose: Choice) -> bool:
        """Place items one by one; False as soon as one does not fit."""
        for number in order:
            item = self.items[number]
            first, last = self._first[number], self._last[number]
            start, end = first // self._width, last // self._width
            sides = self.sides(item)
            offset = choose(self._taken(first, last, start, end, item, sides), item, self)
            after = offset + item.size
            if after > self.room.limit:
                return False
            self._offsets[number] = offset
            entry = (first, last, offset, after)
            for side in sides:
                for each in range(start, end + 1):
                    self._slices[side][each].append(entry)
        return True

    def fit(self, at: int, size: int, align: int) -> int:
        """The first legal offset from a byte on."""
        offset = -(-at // align) * align
        boundary = self.room.boundary
        if boundary and size <= boundary and offset // boundary != (offset + size - 1) // boundary:
            offset = -(-offset // boundary) * boundary
        return offset

    def orders(self) -> Iterator[list[int]]:
        """Orders that tend to pack well: the large and long-lived first."""
        items, first, last = self.items, self._first, self._last
        numbers = range(len(items))
        keys: list[Callable[[int], tuple[int, ...]]] = [
            lambda n: (-self.level(n), -items[n].size, first[n]),
            lambda n: (-items[n].size, first[n] - last[n], first[n]),
            lambda n: (first[n], -items[n].size),
            lambda n: (-items[n].size * (last[n] - first[n] + 1), first[n]),
            lambda n: (first[n] - last[n], -items[n].size, first[n]),
            lambda n: (-last[n], -items[n].size),
        ]
        return (sorted(numbers, key=key) for key in keys)

    def _taken(self, first: int, last: int, start: int, end: int, item: Item, sides: tuple[int, ...]) -> list[Byte]:
        """Byte intervals of what lives at the same time in the same partitions, sorted."""
        if start == end and len(sides) == 1:
            taken = [(low, high) for f, z, low, high in self._slices[sides[0]][start] if f <= last and z >= first]
        else:
            # A set, because an entry is in every slice, and on every side, that it spans.
            near = {entry for side in sides for each in range(start, end + 1) for entry in self._slices[side][each]}
            taken = [(low, high) for f, z, low, high in near if f <= last and z >= first]
        begin, after = item.start, item.start + item.partitions
        for each in range(start, end + 1):
            for f, z, low, high, partition, partition_end in self._fixed[each]:
                if f <= last and z >= first and partition < after and partition_end > begin:
                    taken.append((low, high))
        taken.sort()
        return taken


def _lowest(taken: list[Byte], item: Item, field: _Field) -> int:
    """The lowest hole that is large enough."""
    size, align = item.size, item.align
    at = 0
    for low, high in taken:
        if low - at >= size:
            offset = field.fit(at, size, align)
            if offset + size <= low:
                return offset
        if high > at:
            at = high
    return field.fit(at, size, align)


def _next(taken: list[Byte], item: Item, field: _Field) -> int:
    """The first hole behind the item that was placed before, else the lowest one."""
    size, align, limit = item.size, item.align, field.room.limit
    pointer = field.pointer
    # One pass finds both answers: the first hole behind the pointer, and the lowest one in case there is none.
    at, wrapped = 0, -1
    for low, high in (*taken, (limit, limit)):
        if low - at >= size:
            offset = field.fit(max(at, pointer), size, align)
            if offset + size <= low:
                field.pointer = offset + size
                return offset
            if wrapped < 0:
                offset = field.fit(at, size, align)
                wrapped = offset if offset + size <= low else -1
        if high > at:
            at = high
    offset = wrapped if wrapped >= 0 else limit
    field.pointer = offset + size
    return offset
