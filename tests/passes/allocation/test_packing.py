"""Packing of random intervals: nothing overlaps, limits and alignments hold, and little is wasted."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.passes.allocation.packing import Packing, pack_rotating, pack_tight
from nki.passes.analysis.live_intervals import Fixed, Item, Room
from nki.passes.analysis.pressure import load

POSITIONS = 40
SPANS = st.tuples(st.integers(0, POSITIONS - 1), st.integers(0, POSITIONS - 1)).map(sorted)
ITEMS = st.lists(
    st.builds(
        lambda span, size, partitions, align: Item(span[0], span[1], size, partitions, align),
        SPANS,
        st.integers(1, 100),
        st.sampled_from([16, 32, 128]),
        st.sampled_from([1, 2, 4, 8]),
    ),
    max_size=30,
)
FIXED = st.lists(
    st.builds(
        lambda span, start, size, partition: Fixed(span[0], span[1], start, start + size, partition, partition + 32),
        SPANS,
        st.integers(0, 300),
        st.integers(1, 100),
        st.sampled_from([0, 32, 96]),
    ),
    max_size=8,
)


def check(items: list[Item], fixed: list[Fixed], packing: Packing, boundary: int = 0) -> None:
    """Paint every position's bytes, partition by partition group of 16."""
    assert len(packing.offsets) == len(items)
    assert packing.peak == max((o + i.size for o, i in zip(packing.offsets, items, strict=True)), default=0)
    for item, offset in zip(items, packing.offsets, strict=True):
        assert offset >= 0
        assert offset % item.align == 0
        if boundary and item.size <= boundary:
            assert offset // boundary == (offset + item.size - 1) // boundary
    for position in {0, *(item.first for item in items), *(each.first for each in fixed)}:
        taken: set[tuple[int, int]] = set()
        for each in fixed:
            if each.first <= position <= each.last:
                groups = range(each.partition // 16, each.partition_end // 16)
                taken |= {(group, byte) for group in groups for byte in range(each.start, each.end)}
        for item, offset in zip(items, packing.offsets, strict=True):
            if item.first <= position <= item.last:
                mine = {(g, b) for g in range(item.partitions // 16) for b in range(offset, offset + item.size)}
                assert not mine & taken
                taken |= mine


def bound(items: list[Item], fixed: list[Fixed]) -> int:
    return int(load(items, fixed, POSITIONS).max())


@given(ITEMS, FIXED, st.sampled_from([0, 128]))
def test_tight(items: list[Item], fixed: list[Fixed], boundary: int) -> None:
    packing = pack_tight(items, fixed, Room(1 << 20, boundary), bound(items, fixed))
    check(items, fixed, packing, boundary)
    assert packing == pack_tight(items, fixed, Room(1 << 20, boundary), bound(items, fixed))


@given(ITEMS, FIXED, st.sampled_from([300, 500, 1000, 100_000]), st.sampled_from([0, 128]))
def test_rotating(items: list[Item], fixed: list[Fixed], limit: int, boundary: int) -> None:
    packing = pack_rotating(items, fixed, Room(limit, boundary))
    assert packing == pack_rotating(items, fixed, Room(limit, boundary))
    if packing is None:
        assert limit < 100_000, "there is room for each in a place of its own"
        return
    check(items, fixed, packing, boundary)
    assert packing.peak <= limit


@given(ITEMS, FIXED)
def test_a_lack_of_room_makes_it_try_harder_but_not_wrong(items: list[Item], fixed: list[Fixed]) -> None:
    least = bound(items, fixed)
    check(items, fixed, pack_tight(items, fixed, Room(least), least))


def test_rotation_goes_on_behind_the_last_one() -> None:
    items = [Item(n, n, 10, 128, 1) for n in range(6)]
    packing = pack_rotating(items, [], Room(40))
    assert packing is not None
    assert packing.offsets == (0, 10, 20, 30, 0, 10)


def test_rotation_leaves_the_long_lived_together_if_it_must() -> None:
    """Spread out, the long-lived ones leave 35 + 25 bytes; packed from the bottom, they leave 60."""
    long = [Item(0, 200, 40, 128, 1), *(Item(n, n, 20, 128, 1) for n in range(1, 150)), Item(150, 200, 20, 128, 1)]
    large = Item(151, 151, 40, 128, 1)
    packing = pack_rotating([*long, large], [], Room(100))
    assert packing is not None
    assert packing.peak <= 100


def test_tight_uses_the_bytes_again() -> None:
    assert pack_tight([Item(n, n, 10, 128, 1) for n in range(6)], [], Room(40), 10).peak == 10


def test_a_fixed_interval_in_other_partitions_is_no_obstacle() -> None:
    item, fixed = Item(0, 5, 10, 32, 1), Fixed(0, 5, 0, 100, 64, 128)
    assert pack_tight([item], [fixed], Room(1000), 10).offsets == (0,)
    assert pack_tight([item._replace(partitions=65)], [fixed], Room(1000), 110).offsets == (100,)


def test_climbing_helps_where_orders_do_not() -> None:
    """With what is live at once as the limit, most of these fit only if what did not fit goes first."""
    solved = 0
    for seed in range(20):
        items = random_items(random.Random(seed), 20, "short")
        least = int(load(items, [], 200).max())
        solved += pack_tight(items, [], Room(least + least // 50), least).peak <= least + least // 50
    assert solved >= 14


def random_items(rng: random.Random, count: int, kind: str) -> list[Item]:
    """Intervals of a kind: of any length, short, few long among many short, or of a heavy tail."""
    items, end = [], 2 * count - 1
    for _ in range(count):
        first = rng.randrange(end)
        match kind:
            case "any":
                length, size = rng.randrange(end), rng.randrange(1, 1000)
            case "short":
                length, size = rng.randrange(1, 30), rng.randrange(1, 64) * 32
            case "mixed":
                length = rng.randrange(1, 20) if rng.random() < 0.9 else rng.randrange(count // 2 + 1)
                size = rng.choice([4, 64, 256, 512, 1024, 2048, 8192])
            case _:
                length, size = int(rng.paretovariate(0.8)), 2 ** rng.randrange(2, 14)
        items.append(Item(first, min(end, first + length), size, 128, 1))
    return items


@pytest.mark.parametrize("kind", ["any", "short", "mixed", "tail"])
@pytest.mark.parametrize("count", [10, 60, 200])
def test_little_is_wasted(kind: str, count: int) -> None:
    """Geometric mean of peak over what is live at once, which is below the best possible."""
    ratios = []
    for seed in range(8):
        items = random_items(random.Random(seed), count, kind)
        least = int(load(items, [], 2 * count).max())
        ratios.append(pack_tight(items, [], Room(1 << 40), least).peak / least)
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) <= 1.06
    assert max(ratios) <= 1.2
