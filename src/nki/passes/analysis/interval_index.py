"""Which earlier accesses to a memory a new one has to follow: an index over the last ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Footprint
from nki.passes.analysis.memory_boxes import IndexLayout, MemoryBox, boxes

_CROWD = 16
_MOST_RAGGED = 256
_MOST_PAIRS = 1 << 16
_MOST_FOLLOWED = 64
_END = 1 << 62
_EVERYTHING = Footprint("", "", (0, _END), 0, (), _END)


_Entry = tuple[int, Footprint, int, int, int, int, bool]
"""Position of an instruction, what it accesses, and one box of that: first, after, low, high, dense."""

_Group = tuple[list[int], Footprint, int, int, int, int, bool]
"""Positions of several instructions that read one box, and an `_Entry` without its position.

What thousands of instructions read is looked at once.
"""


_Shape = tuple[Footprint, int, int, int, int, bool]
"""An `_Entry` without its position."""

_Covers = tuple[int, int, int, int]
"""What a write covers in a cell: first and after, low and high; unlimited along the cells if it spans this one."""


class _Cell:
    """The accesses to a range of places that later ones may have to follow; split in two when there are too many.

    Readers are grouped by the identity of the box that they read. `writes` counts the writes, so that whoever knows
    what it followed knows whether that is still all.
    """

    __slots__ = ("limit", "readers", "writers", "writes")

    def __init__(self, readers: dict[int, _Group], writers: list[_Entry], limit: int = _CROWD) -> None:
        self.readers = readers
        self.writers = writers
        self.limit = limit
        self.writes = 0


class _Place:
    """Where the cells of a plane have a box; as long as they are the same, this is asked for once.

    Attributes:
        shape: the box, of what.
        cut: the number of times that cells had been split or joined.
        first, after: the range of cells that it touches.
        cell: the only one, or None if there are several.
        covers: what a write covers of that one.
        writes: of that one, when the group of readers was joined last; -1 if there is none.
        followed, positions: what reads have to follow, and the positions of that group.
    """

    __slots__ = ("after", "box", "cell", "covers", "cut", "first", "followed", "positions", "shape", "writes")

    def __init__(self, box: MemoryBox, footprint: Footprint) -> None:
        self.box = box
        self.shape: _Shape = (footprint, *box)
        self.cut = self.writes = -1
        self.first = self.after = 0
        self.cell: _Cell | None = None
        self.covers: _Covers | None = None
        self.followed: set[int] = set()
        self.positions: list[int] = []


class Plane:
    """The last accesses to one memory, found by place: cells that begin at ascending bytes, or rows of HBM.

    `read` and `write` add an access and put the positions of the earlier ones that it must follow into `found`. A
    write forgets what it covers, because whoever conflicts with that conflicts with the write as well.
    """

    __slots__ = ("_apart", "_by_rows", "_cells", "_cut", "_pitch", "_places", "_starts")

    def __init__(self, layout: IndexLayout) -> None:
        self._pitch, self._by_rows = layout
        self._starts = [0]
        self._cells = [_Cell({}, [])]
        self._cut = 0
        self._places: dict[Footprint, tuple[_Place, ...]] = {}
        self._apart: dict[tuple[Footprint, Footprint], bool] = {}

    def read(self, position: int, footprint: Footprint, found: set[int]) -> None:
        """A read follows the writes of the same bytes."""
        for place in self._places.get(footprint) or self._fold(footprint):
            if place.cut != self._cut:
                self._locate(place)
            cell = place.cell
            if cell is None:
                self._read(position, place, found)
            elif place.writes == cell.writes:
                found |= place.followed
                place.positions.append(position)
            else:
                place.followed = set()
                if cell.writers:
                    self._follow(cell.writers, place.shape, place.followed)
                    found |= place.followed
                if self._join_readers(cell, position, place):
                    self._relieve(place.first, place.after)

    def _read(self, position: int, place: _Place, found: set[int]) -> None:
        """A read of several cells."""
        crowded = False
        for cell in self._cells[place.first : place.after]:
            if cell.writers:
                self._follow(cell.writers, place.shape, found)
            crowded |= self._join_readers(cell, position, place)
        if crowded:
            self._relieve(place.first, place.after)

    def _join_readers(self, cell: _Cell, position: int, place: _Place) -> bool:
        """Add a reader to a cell; returns whether that has too many accesses now."""
        key = id(place.box)  # `_places` keeps the box alive, so that nothing else gets its identity
        group = cell.readers.get(key)
        place.writes = cell.writes
        if group is not None:
            place.positions = group[0]
            group[0].append(position)
            return False
        place.positions = [position]
        cell.readers[key] = (place.positions, *place.shape)
        return len(cell.readers) + len(cell.writers) > cell.limit

    def write(self, position: int, footprint: Footprint, found: set[int]) -> None:
        """A write follows the reads and writes of the same bytes."""
        for place in self._places.get(footprint) or self._fold(footprint):
            if place.cut != self._cut:
                self._locate(place)
            cell, entry = place.cell, (position, *place.shape)
            if cell is None:
                self._write(entry, place, found)
                continue
            self._enter(cell, entry, place.covers, found)
            if len(cell.readers) + len(cell.writers) > cell.limit:
                self._relieve(place.first, place.after)

    def _write(self, entry: _Entry, place: _Place, found: set[int]) -> None:
        """A write to several cells."""
        clean, crowded, box = [], False, place.box
        for at in range(place.first, place.after):
            cell = self._cells[at]
            within = self._within(at, box)
            whole = self._enter(cell, entry, self._covers(box, within), found)
            crowded |= len(cell.readers) + len(cell.writers) > cell.limit
            # Undo splits where one write has replaced all: otherwise cells would add up over a program that fills a
            # tensor in pieces and then as a whole.
            if within and not whole and not cell.readers and len(cell.writers) == 1:
                clean.append(at)
        if len(clean) > 1:
            self._join(clean)
        elif crowded:
            self._relieve(place.first, place.after)

    def _enter(self, cell: _Cell, entry: _Entry, covers: _Covers | None, found: set[int]) -> bool:
        """Add a write to a cell; returns whether it counts as a write of everything from now on."""
        readers, writers = cell.readers, cell.writers
        cell.writes += 1
        if not entry[6] and len(readers) + len(writers) > _MOST_RAGGED:
            # Follow all of them and count as a write of everything, so that nobody looks at them again.
            found.update([other[0] for other in writers], *(group[0] for group in readers.values()))
            cell.readers, cell.writers = {}, [(entry[0], _EVERYTHING, 0, _END, 0, _END, True)]
            return True
        if readers:
            self._after_readers(readers, entry, covers, found)
        if writers:
            cell.writers = writers = self._replace(writers, entry, covers, found)
        writers.append(entry)
        return False

    def _follow(self, entries: list[_Entry], shape: _Shape, found: set[int]) -> None:
        footprint, first, after, low, high, dense = shape
        for position, other, top, end, left, right, full in entries:
            if (
                left < high
                and low < right
                and top < after
                and first < end
                and position not in found
                and ((full and dense) or not self._disjoint(other, footprint))
            ):
                found.add(position)

    def _after_readers(self, groups: dict[int, _Group], entry: _Entry, covers: _Covers | None, found: set[int]) -> None:
        """Follow the conflicting ones of some reads, and forget those that a write covers.

        Reads that no write covers, for example at dynamic addresses, would become more and more: from many of them on,
        whoever follows them later follows this write in their place.
        """
        me, footprint, first, after, low, high, dense = entry
        covered, followed, count = [], [], 0
        for key, (positions, shape, top, end, start, right, full) in groups.items():
            if start < high and low < right and top < after and first < end:
                if (full and dense) or not self._disjoint(shape, footprint):
                    found.update(positions)
                    followed.append(key)
                    count += len(positions)
                if shape is footprint or (
                    covers and covers[0] <= top and end <= covers[1] and covers[2] <= start and right <= covers[3]
                ):
                    covered.append(key)
        if count > _MOST_FOLLOWED:
            for key in followed:
                groups[key] = ([me], *groups[key][1:])
        for key in covered:
            del groups[key]

    def _replace(self, entries: list[_Entry], entry: _Entry, covers: _Covers | None, found: set[int]) -> list[_Entry]:
        """Follow the conflicting ones of some accesses; returns those that a write does not cover."""
        me, footprint, first, after, low, high, dense = entry
        kept = []
        for other in entries:
            position, shape, top, end, start, right, full = other
            if start < high and low < right and top < after and first < end:
                if position not in found and ((full and dense) or not self._disjoint(shape, footprint)):
                    found.add(position)
                if (shape is footprint and position != me) or (
                    covers and covers[0] <= top and end <= covers[1] and covers[2] <= start and right <= covers[3]
                ):
                    continue
            kept.append(other)
        return kept

    def _disjoint(self, a: Footprint, b: Footprint) -> bool:
        if a is b:
            return False
        apart = self._apart.get((a, b))
        if apart is None:
            if len(self._apart) > _MOST_PAIRS:
                self._apart.clear()
            apart = self._apart[a, b] = disjoint(a, b)
        return apart

    def _fold(self, footprint: Footprint) -> tuple[_Place, ...]:
        made = self._places[footprint] = tuple([_Place(box, footprint) for box in boxes(footprint, self._pitch)])
        return made

    def _locate(self, place: _Place) -> None:
        """Find the cells that a box touches."""
        box = place.box
        low, high = (box[0], box[1]) if self._by_rows else (box[2], box[3])
        first = bisect_right(self._starts, low) - 1
        after = bisect_left(self._starts, high, first + 1)
        place.cut, place.first, place.after, place.writes = self._cut, first, after, -1
        if after - first > 1:
            place.cell = None
        else:
            place.cell = self._cells[first]
            place.covers = self._covers(box, self._within(first, box))

    def _within(self, at: int, box: MemoryBox) -> bool:
        """Whether a box spans a whole cell."""
        low, high = (box.first, box.after) if self._by_rows else (box.low, box.high)
        end = self._starts[at + 1] if at + 1 < len(self._starts) else _END
        return low <= self._starts[at] and end <= high

    def _covers(self, box: MemoryBox, within: bool) -> _Covers | None:
        """What a write covers of the accesses to one cell; None if it leaves gaps."""
        if not box.dense:
            return None
        # Accesses may reach out of the cell, but the other cells have them too: in this one only its own range counts.
        if not within:
            return box[:4]
        return (0, _END, box.low, box.high) if self._by_rows else (box.first, box.after, 0, _END)

    def _join(self, clean: list[int]) -> None:
        """Make one cell of neighbours that hold nothing but the same write."""
        for left, right in zip(reversed(clean[:-1]), reversed(clean[1:]), strict=True):
            if right == left + 1:
                self._cut += 1
                del self._starts[right], self._cells[right]

    def _relieve(self, first: int, after: int) -> None:
        for at in range(after - 1, first - 1, -1):
            cell = self._cells[at]
            if len(cell.readers) + len(cell.writers) > cell.limit:
                self._split(at)

    def _split(self, at: int) -> None:
        """Cut a crowded cell where half of its accesses have begun."""
        cell, start = self._cells[at], self._starts[at]
        entries: list[_Group | _Entry] = [*cell.readers.values(), *cell.writers]
        # First of all, so that a cell that cannot be cut well is not tried again with every access.
        cell.limit = 2 * len(entries)
        begins = sorted([low for low, _ in map(self._extent, entries) if low > start])
        if not begins:
            return
        middle = begins[len(begins) // 2]
        left = _Cell(*self._part(cell, start, middle))
        right = _Cell(*self._part(cell, middle, _END))
        sizes = [len(half.readers) + len(half.writers) for half in (left, right)]
        # Most accesses span the cut, and both halves would hold them.
        if max(sizes) > 0.9 * len(entries):
            return
        for half, size in zip((left, right), sizes, strict=True):
            half.limit = max(_CROWD, 2 * size)
        self._cut += 1
        self._starts.insert(at + 1, middle)
        self._cells[at : at + 1] = [left, right]

    def _part(self, cell: _Cell, low: int, high: int) -> tuple[dict[int, _Group], list[_Entry]]:
        """The readers and writers of a cell that reach into a range of places."""

        def reaches(entry: _Group | _Entry) -> bool:
            begin, end = self._extent(entry)
            return begin < high and end > low

        # A copy of the positions, because each half adds its own from here on.
        readers = {key: ([*group[0]], *group[1:]) for key, group in cell.readers.items() if reaches(group)}
        return readers, [entry for entry in cell.writers if reaches(entry)]

    def _extent(self, entry: _Group | _Entry) -> tuple[int, int]:
        return (entry[2], entry[3]) if self._by_rows else (entry[4], entry[5])
