"""Sets of bytes as a few boxes: rows of a memory, and bytes of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from nki.passes.analysis.disjoint import run_count, starts
from nki.passes.analysis.footprints import Dims, Footprint

_MOST_BOXES = 4


class MemoryBox(NamedTuple):
    """Rows first:after, bytes low:high of each; `dense` if every byte of it is meant."""

    first: int
    after: int
    low: int
    high: int
    dense: bool


class IndexLayout(NamedTuple):
    """How an index sees a memory: HBM folded into rows of `pitch` bytes (0: not), cells along rows or along bytes."""

    pitch: int = 0
    by_rows: bool = False


def layout_of(footprints: Iterable[Footprint]) -> IndexLayout:
    """The layout of an HBM buffer under which most of its accesses are boxes, and cells hold few of them."""
    known = tuple(footprints)
    votes = Counter(f.dims[-1][0] for f in known if f.dims)
    if not votes:
        return IndexLayout()
    pitch = max(votes, key=lambda stride: (votes[stride], stride))
    rows, columns = {f.low // pitch for f in known}, {f.low % pitch for f in known}
    return IndexLayout(pitch, len(rows) > len(columns))


def boxes(footprint: Footprint, pitch: int) -> tuple[MemoryBox, ...]:
    """A footprint as a few boxes; with `pitch`, the one row of HBM is folded into rows of that length."""
    f = footprint
    if not pitch:
        return _cut(f.first, f.after, f.low, f.dims, f.run)
    row, column = divmod(f.low, pitch)
    if not f.dims:
        return _folded_run(row, column, f.run, pitch)
    outer = [(stride // pitch, count) for stride, count in f.dims if stride % pitch == 0]
    inner = tuple(dim for dim in f.dims if dim[0] % pitch)
    span = sum(stride * (count - 1) for stride, count in inner) + f.run
    if column + span > pitch:
        return (MemoryBox(row, (f.high - 1) // pitch + 1, 0, pitch, False),)
    rows = 1
    if outer and outer[-1][0] == 1:
        rows = outer.pop()[1]
    if run_count(tuple(outer)) > _MOST_BOXES:
        return (MemoryBox(row, (f.high - 1) // pitch + 1, column, column + span, False),)
    return tuple(box for r in starts(row, tuple(outer)) for box in _cut(r, r + rows, column, inner, f.run))


def _cut(first: int, after: int, low: int, dims: Dims, run: int) -> tuple[MemoryBox, ...]:
    if not dims:
        return (_new_tuple(MemoryBox, (first, after, low, low + run, True)),)
    if run_count(dims) > _MOST_BOXES:
        high = low + sum(stride * (count - 1) for stride, count in dims) + run
        return (MemoryBox(first, after, low, high, False),)
    return tuple(MemoryBox(first, after, start, start + run, True) for start in starts(low, dims))


def _folded_run(row: int, column: int, run: int, pitch: int) -> tuple[MemoryBox, ...]:
    """A contiguous run: the end of a row, whole rows, the start of a row."""
    end_row, end = divmod(column + run, pitch)
    if end_row == 0:
        return (MemoryBox(row, row + 1, column, end, True),)
    found = []
    if column:
        found.append(MemoryBox(row, row + 1, column, pitch, True))
    if end_row > (1 if column else 0):
        found.append(MemoryBox(row + (1 if column else 0), row + end_row, 0, pitch, True))
    if end:
        found.append(MemoryBox(row + end_row, row + end_row + 1, 0, end, True))
    return tuple(found)


_new_tuple = tuple.__new__
"""Makes a named tuple in half the time."""
