"""What thousands of instructions read counts once where others write beside it."""

from __future__ import annotations

from nki.passes.analysis.footprints import Footprint
from nki.passes.analysis.interval_index import Plane
from nki.passes.analysis.memory_boxes import IndexLayout

READERS = 3000


def row(low: int, high: int) -> Footprint:
    """Contiguous bytes of all partitions."""
    return Footprint("sbuf", "sbuf", (0, 128), low, (), high - low)


def test_readers_of_the_same_bytes_are_one_group() -> None:
    plane, weights, found = Plane(IndexLayout()), row(0, 256), set[int]()
    for position in range(READERS):
        plane.read(position, weights, found)
    assert not found
    (cell,) = plane._cells
    assert len(cell.readers) == 1
    plane.write(READERS, row(256, 512), found)
    assert not found
    plane.write(READERS + 1, row(128, 384), found)
    assert found == {*range(READERS), READERS}


def test_a_covering_write_stands_for_all_of_them() -> None:
    plane, weights = Plane(IndexLayout()), row(0, 256)
    for position in range(READERS):
        plane.read(position, weights, set())
    for found, expected in ((set[int](), {*range(READERS)}), (set[int](), {READERS})):
        plane.write(READERS + len(expected) % READERS, weights, found)
        assert found == expected


def test_groups_stay_apart_when_a_cell_is_split() -> None:
    plane = Plane(IndexLayout())
    wide = row(0, 64 * 100)
    pieces = [row(64 * number, 64 * (number + 1)) for number in range(100)]
    plane.read(0, wide, set())
    for position, piece in enumerate(pieces, start=1):
        plane.read(position, piece, set())
    assert len(plane._cells) > 1
    plane.read(101, wide, set())
    for number in (0, 50, 99):
        found = set[int]()
        plane.write(200 + number, pieces[number], found)
        assert found == {0, 101, number + 1}
