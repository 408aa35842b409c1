"""Accesses to tiles that are equal or apart: an exact index says what the index for all kinds says."""

from random import Random

import pytest

from nki.passes.analysis.exact_index import ExactIndex, all_apart
from nki.passes.analysis.footprints import Footprint
from nki.passes.analysis.interval_index import Plane
from nki.passes.analysis.memory_boxes import layout_of

PITCH = 4096


def on_chip(first: int, low: int, *, rows: int = 32, run: int = 64) -> Footprint:
    return Footprint("sbuf", "sbuf", (first, first + rows), low, (), run)


def in_hbm(row: int, column: int, *, rows: int = 16, run: int = 512) -> Footprint:
    return Footprint(7, "t", (0, 1), row * PITCH + column, ((PITCH, rows),), run, hbm=True)


CHIP = [on_chip(first, low) for first in (0, 32, 64) for low in (0, 64, 256)]
DEVICE = [in_hbm(row, column) for row in range(0, 128, 16) for column in range(0, PITCH, 512)]


@pytest.mark.parametrize("tiles", [CHIP, DEVICE])
def test_both_indices_say_the_same(tiles: list[Footprint]) -> None:
    layout, random = layout_of([tile for tile in tiles if tile.hbm]), Random(1)
    assert all_apart(tiles, layout.pitch)
    exact, plane = ExactIndex(), Plane(layout)
    followed = 0
    for position in range(2000):
        tile = random.choice(tiles)
        found: tuple[set[int], set[int]] = (set(), set())
        for index, each in zip((exact, plane), found, strict=True):
            (index.read if position % 3 else index.write)(position, tile, each)
        assert found[0] == found[1]
        followed += len(found[0])
    assert followed > 2000


@pytest.mark.parametrize(
    "other",
    [
        on_chip(16, 0),
        on_chip(0, 32),
        on_chip(0, 0),  # the same bytes, but another set: only one of them may be at a dynamic address
        on_chip(0, 0, run=128),
        Footprint("sbuf", "sbuf", (96, 128), 1024, ((64, 10),), 4),  # far away, but with many gaps
    ],
)
def test_sets_that_overlap_or_have_gaps_are_not_exact(other: Footprint) -> None:
    assert all_apart(CHIP, 0)
    assert not all_apart([*CHIP, other], 0)


def test_a_row_of_device_memory_meets_tiles_in_it() -> None:
    assert not all_apart([*DEVICE, in_hbm(5, 0, rows=1, run=PITCH)], PITCH)
