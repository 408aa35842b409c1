"""Which earlier accesses to a memory a new one conflicts with although nothing orders them: what proves a schedule.

Shares nothing with `overlap`, whose results it judges: accesses are found in grids of cells of their own size, and
compared as bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Literal, NamedTuple

from nki.passes.analysis.footprints import Footprint, Space

Clock = Sequence[int]
"""For each queue how many of its instructions have completed when an instruction starts, its own queue included."""

Kind = Literal["raw", "war", "waw"]
_MOST_BITS = 1 << 24
_MOST_PAIRS = 1 << 16

# Sizes of cells as powers of two, by the bits of an access's extent: few sizes, so that few grids are looked at.
_ROW_LEVEL = [max(4, -(-bits // 4) * 4) for bits in range(64)]
_BYTE_LEVEL = [max(12, -(-bits // 4) * 4) for bits in range(64)]


class Doer(NamedTuple):
    """An instruction: its position, its queue, and how many of that queue are done once it is."""

    position: int
    queue: int
    done: int


class Conflict(NamedTuple):
    """Two accesses to the same bytes, at least one of them a write, that may happen in either order."""

    kind: Kind
    earlier: int
    later: int
    first: Footprint
    second: Footprint


class _Area(NamedTuple):
    """A rectangle around a footprint, both ends included; `full` if it has all of its bytes."""

    top: int
    bottom: int
    left: int
    right: int
    full: bool


_Entry = tuple[Doer, Footprint, _Area]


class Conflicts:
    """The last accesses of everybody to the memories of a core.

    Attributes:
        over: for each queue how many of its instructions have completed before everything that is still to come: their
            accesses are forgotten. Empty if nobody knows.
    """

    def __init__(self, everything: Iterable[Footprint]) -> None:
        """All footprints that will come: those of HBM say how long its rows are."""
        votes: dict[Space, dict[int, int]] = {}
        for footprint in everything:
            if footprint.hbm and footprint.dims:
                row, count = footprint.dims[-1][0], votes.setdefault(footprint.space, {})
                count[row] = count.get(row, 0) + 1
        self._rows = {space: max(count, key=count.__getitem__) for space, count in votes.items()}
        self._readers: dict[Space, _Grid] = {}
        self._writers: dict[Space, _Grid] = {}
        self._areas: dict[Footprint, _Area] = {}
        self._meeting: dict[tuple[Footprint, Footprint], bool] = {}
        self.over: Clock = ()

    def read(self, doer: Doer, footprint: Footprint, clock: Clock, found: list[Conflict]) -> None:
        """Add a read; finds the writes of its bytes that may not have completed."""
        self._meet_all(self._writers, "raw", doer, footprint, clock, found)
        self._forget(footprint, clock)
        self.add(doer, footprint, writes=False)

    def write(self, doer: Doer, footprint: Footprint, clock: Clock, found: list[Conflict]) -> None:
        """Add a write; finds the reads and writes of its bytes that may not have completed."""
        self._meet_all(self._readers, "war", doer, footprint, clock, found)
        self._meet_all(self._writers, "waw", doer, footprint, clock, found)
        self.add(doer, footprint, writes=True)

    def _meet_all(
        self,
        grids: dict[Space, _Grid],
        kind: Kind,
        doer: Doer,
        footprint: Footprint,
        clock: Clock,
        found: list[Conflict],
    ) -> None:
        """Find the conflicts of a kind, and forget what is ordered and within the new access.

        Whatever conflicts with that later, conflicts with the new access as well. A read stands for no write.
        """
        grid = grids.get(footprint.space)
        if grid is None:
            return
        area, forget, over = self._area(footprint), kind != "raw", self.over
        top, bottom, left, right, _ = area
        # An entry lies in up to four cells, and an instruction has several accesses: one conflict of it is enough.
        reported: set[int] = set()
        for cell in grid.near(area):
            gone = set()
            for entry in cell:
                (position, queue, done), other, its = entry
                if over and over[queue] >= done:
                    gone.add(id(entry))
                elif its[1] < top or bottom < its[0] or its[3] < left or right < its[2]:
                    continue
                elif clock[queue] >= done:
                    if forget and _within(entry, footprint, area):
                        gone.add(id(entry))
                elif position != doer.position and position not in reported and self._meet(other, footprint):
                    reported.add(position)
                    found.append(Conflict(kind, position, doer.position, other, footprint))
            if gone:
                cell[:] = [entry for entry in cell if id(entry) not in gone]

    def _forget(self, footprint: Footprint, clock: Clock) -> None:
        """Forget reads that a new one stands for: those of its own bytes, which is where they pile up."""
        grid = self._readers.get(footprint.space)
        if grid is None:
            return
        over = self.over
        for cell in grid.same(self._area(footprint)):
            kept = [
                entry
                for entry in cell
                if (clock[entry[0].queue] < entry[0].done or entry[1] is not footprint)
                and not (over and over[entry[0].queue] >= entry[0].done)
            ]
            if len(kept) < len(cell):
                cell[:] = kept

    def add(self, doer: Doer, footprint: Footprint, writes: bool) -> None:
        """Add an access without asking what it conflicts with."""
        grids = self._writers if writes else self._readers
        grid = grids.get(footprint.space)
        if grid is None:
            grid = grids[footprint.space] = _Grid()
        grid.add((doer, footprint, self._area(footprint)))

    def _area(self, footprint: Footprint) -> _Area:
        found = self._areas.get(footprint)
        if found is None:
            found = self._areas[footprint] = _area(footprint, self._rows.get(footprint.space, 0))
        return found

    def _meet(self, a: Footprint, b: Footprint) -> bool:
        """Whether two footprints whose areas overlap share a byte."""
        if a is b or (self._area(a).full and self._area(b).full):
            return True
        found = self._meeting.get((a, b))
        if found is None:
            if len(self._meeting) > _MOST_PAIRS:
                self._meeting.clear()
            found = self._meeting[a, b] = share_bytes(a, b)
        return found


class _Grid:
    """Accesses by place: each lies in up to four cells of a grid whose cells are about as large as it is itself."""

    __slots__ = ("levels",)

    def __init__(self) -> None:
        self.levels: dict[tuple[int, int], dict[tuple[int, int], list[_Entry]]] = {}

    def add(self, entry: _Entry) -> None:
        top, bottom, left, right, _ = entry[2]
        level = _ROW_LEVEL[(bottom - top).bit_length()], _BYTE_LEVEL[(right - left).bit_length()]
        cells = self.levels.get(level)
        if cells is None:
            cells = self.levels[level] = {}
        high, wide = level
        for row in range(top >> high, (bottom >> high) + 1):
            for column in range(left >> wide, (right >> wide) + 1):
                cell = cells.get((row, column))
                if cell is None:
                    cells[row, column] = [entry]
                else:
                    cell.append(entry)

    def near(self, area: _Area) -> list[list[_Entry]]:
        """The cells that an area touches."""
        top, bottom, left, right, _ = area
        found = []
        for (high, wide), cells in self.levels.items():
            row, column = top >> high, left >> wide
            last_row, last_column = bottom >> high, right >> wide
            if row == last_row and column == last_column:
                cell = cells.get((row, column))
                if cell:
                    found.append(cell)
                continue
            rows, columns = range(row, last_row + 1), range(column, last_column + 1)
            # A large area over small cells: cheaper to look through those that exist.
            if len(rows) * len(columns) > len(cells):
                found += [cell for (row, column), cell in cells.items() if cell and row in rows and column in columns]
                continue
            for row in rows:
                for column in columns:
                    cell = cells.get((row, column))
                    if cell:
                        found.append(cell)
        return found

    def same(self, area: _Area) -> list[list[_Entry]]:
        """The cells in which accesses of the same area lie."""
        top, bottom, left, right, _ = area
        high, wide = level = _ROW_LEVEL[(bottom - top).bit_length()], _BYTE_LEVEL[(right - left).bit_length()]
        cells = self.levels.get(level)
        if cells is None:
            return []
        rows, columns = range(top >> high, (bottom >> high) + 1), range(left >> wide, (right >> wide) + 1)
        return [cell for row in rows for column in columns if (cell := cells.get((row, column)))]


def _within(entry: _Entry, footprint: Footprint, area: _Area) -> bool:
    # A ragged access leaves bytes of its area alone, and so stands for no other access but an equal one.
    _, other, its = entry
    return other is footprint or (
        area.full
        and area.top <= its.top
        and its.bottom <= area.bottom
        and area.left <= its.left
        and its.right <= area.right
    )


def _area(footprint: Footprint, row: int) -> _Area:
    """The area of a footprint; HBM is folded into rows if their length is known."""
    low, last, dims = footprint.low, footprint.high - 1, footprint.dims
    if not footprint.hbm or not row:
        return _Area(footprint.first, footprint.after - 1, low, last, not dims)
    inner = [(stride, count) for stride, count in dims if stride % row]
    left = low % row
    right = left + footprint.run - 1 + sum(stride * (count - 1) for stride, count in inner)
    if right >= row:
        return _Area(low // row, last // row, 0, row - 1, not dims and left == 0 and footprint.run % row == 0)
    steps = [stride for stride, _ in dims if not stride % row]
    return _Area(low // row, last // row, left, right, not inner and (not steps or steps == [row]))


def share_bytes(a: Footprint, b: Footprint) -> bool:
    """Whether two footprints of one space share a byte; very long ragged ones count as if they did."""
    if a.after <= b.first or b.after <= a.first or a.high <= b.low or b.high <= a.low:
        return False
    # Starts, steps and runs are whole units, so that one bit for each unit is exact.
    unit = gcd(a.low - b.low, a.run, b.run, *(stride for stride, _ in (*a.dims, *b.dims)))
    start = min(a.low, b.low)
    if (max(a.high, b.high) - start) // unit > _MOST_BITS:
        # Too long to look at. A conflict that is none only makes the proof fail; one that is overlooked makes it false.
        return True
    first, second = _mask(a, unit), _mask(b, unit)
    return bool((first << (a.low - start) // unit) & (second << (b.low - start) // unit))


def _mask(footprint: Footprint, unit: int) -> int:
    """One bit for each `unit` bytes from the first on."""
    mask = (1 << footprint.run // unit) - 1
    for stride, count in footprint.dims:
        step, wanted = stride // unit, count
        line, done = mask, 1
        while done < wanted:  # what is there twice as often, until it is there often enough
            more = min(done, wanted - done)
            line |= line << step * more
            done += more
        mask = line
    return mask
