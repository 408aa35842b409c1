"""The index of accesses against comparing every pair: whatever is missing follows from the rest, in every layout."""

from __future__ import annotations

from random import Random

import pytest

from nki.passes.analysis.footprints import Footprint
from nki.passes.analysis.interval_index import Plane
from nki.passes.analysis.memory_boxes import IndexLayout, layout_of

ROWS, PITCH = 32, 64
Access = tuple[Footprint, bool]


def block(rows: tuple[int, int], columns: tuple[int, int], step: int = 1) -> Footprint:
    """Rows and columns of a matrix in device memory; every `step`-th row."""
    (first, after), (left, right) = rows, columns
    count, run = len(range(first, after, step)), right - left
    if count == 1 or (run == PITCH and step == 1):
        return Footprint(0, "hbm", (0, 1), first * PITCH + left, (), run + (count - 1) * PITCH, hbm=True)
    return Footprint(0, "hbm", (0, 1), first * PITCH + left, ((PITCH * step, count),), run, hbm=True)


def scattered(random: Random) -> Footprint:
    """Columns with gaps, in some rows."""
    first, count = random.randrange(ROWS - 4), random.randint(2, 4)
    dims = (PITCH, count), (8, random.randint(2, 7))
    return Footprint(0, "hbm", (0, 1), first * PITCH + random.randrange(4), dims, random.randint(1, 4), hbm=True)


def accesses(random: Random, count: int = 150) -> list[Access]:
    """Reads and writes of rows, columns, blocks, and what has gaps; a third of them writes."""
    wide = random.choice([1, 4, 8])
    made: dict[tuple[object, ...], Footprint] = {}
    found = []
    for _ in range(count):
        kind = random.choice(["rows", "columns", "block", "block", "scattered"])
        first = random.randrange(0, ROWS, wide)
        left = random.randrange(0, PITCH, 8)
        rows = (first, min(ROWS, first + wide))
        columns = (left, min(PITCH, left + random.choice([8, 16, 24])))
        if kind == "rows":
            columns = (0, PITCH)
        elif kind == "columns":
            rows = (0, ROWS)
        key = kind, rows, columns
        shape = scattered(random) if kind == "scattered" else made.setdefault(key, block(rows, columns))
        found.append((shape, random.random() < 1 / 3))
    return found


def bits(footprint: Footprint) -> int:
    """The bytes of a footprint, as bits."""
    starts = [footprint.low]
    for stride, count in footprint.dims:
        starts = [start + k * stride for start in starts for k in range(count)]
    return sum(((1 << footprint.run) - 1) << start for start in set(starts))


def missing(listed: list[Access], layout: IndexLayout) -> list[tuple[int, int]]:
    """Pairs that conflict, but neither follow each other by the index nor by what it says of others."""
    plane = Plane(layout)
    masks = [bits(footprint) for footprint, _ in listed]
    before: list[int] = []
    gaps = []
    for at, (footprint, writes) in enumerate(listed):
        found: set[int] = set()
        (plane.write if writes else plane.read)(at, footprint, found)
        known = 0
        for other in found:
            known |= before[other] | 1 << other
        before.append(known)
        for other in range(at):
            if (writes or listed[other][1]) and masks[other] & masks[at] and not known >> other & 1:
                gaps.append((other, at))
    return gaps


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_missing(seed: int) -> None:
    listed = accesses(Random(seed))
    for layout in (
        layout_of(footprint for footprint, _ in listed),
        IndexLayout(PITCH, True),
        IndexLayout(PITCH),
        IndexLayout(),
    ):
        assert not missing(listed, layout)


def test_a_write_of_some_columns_leaves_the_others() -> None:
    """All rows of a crowded cell, but not all columns: what was written to the others still counts."""
    rows = [(block((row, row + 1), (0, PITCH)), True) for row in range(ROWS)]
    columns = [(block((0, ROWS), (left, left + 8)), True) for left in (0, 8)]
    later = [(block((0, ROWS), (32, 40)), False), (block((0, ROWS), (0, 8)), False)]
    assert not missing([*rows, *columns, *later], IndexLayout(PITCH, True))
