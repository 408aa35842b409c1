"""Packing of items in both halves of the partitions, by themselves and in random programs."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nki.core.errors import VerificationError
from nki.core.tensor import Buffer
from nki.passes.allocation.addresses import Layout, allocate
from nki.passes.allocation.packing import Packing, pack_rotating, pack_tight
from nki.passes.allocation.partition_halves import upper_half
from nki.passes.analysis.live_intervals import Fixed, Item, Room
from nki.passes.analysis.memory_usage import usage
from nki.passes.analysis.pressure import load
from nki.passes.context import Context
from nki.spec.program import Block, Program
from tests.passes.allocation.support import TRN2, box, buffer, lives, meet, program, use

HALF = 64
POSITIONS = 30
SMALL = replace(TRN2, sbuf=replace(TRN2.sbuf, usable_bytes_per_partition=1024))
"""So little SBUF that random programs overflow it."""

SPANS = st.tuples(st.integers(0, POSITIONS - 1), st.integers(0, POSITIONS - 1)).map(sorted)
PLACES = st.tuples(st.just(0), st.integers(1, 128)) | st.tuples(st.just(HALF), st.integers(1, HALF))
ITEMS = st.lists(
    st.builds(
        lambda span, size, place, align: Item(span[0], span[1], size, place[1], align, place[0]),
        SPANS,
        st.integers(1, 100),
        PLACES,
        st.sampled_from([1, 2, 4, 8]),
    ),
    max_size=24,
)
FIXED = st.lists(
    st.builds(
        lambda span, start, size, low, count: Fixed(span[0], span[1], start, start + size, low, min(low + count, 128)),
        SPANS,
        st.integers(0, 300),
        st.integers(1, 100),
        st.integers(0, 127),
        st.integers(1, 128),
    ),
    max_size=6,
)


def wrong(items: list[Item], fixed: list[Fixed], packing: Packing) -> list[tuple[Item, Item | Fixed]]:
    """Items that share a byte of a partition with something at the same time, asked pair by pair."""
    found: list[tuple[Item, Item | Fixed]] = []
    placed = list(zip(items, packing.offsets, strict=True))
    for (a, at), (b, other) in combinations(placed, 2):
        here = at, at + a.size, a.start, a.start + a.partitions
        there = other, other + b.size, b.start, b.start + b.partitions
        if a.first <= b.last and b.first <= a.last and crossing(here, there):
            found.append((a, b))
    for a, at in placed:
        here = at, at + a.size, a.start, a.start + a.partitions
        for each in fixed:
            there = each.start, each.end, each.partition, each.partition_end
            if a.first <= each.last and each.first <= a.last and crossing(here, there):
                found.append((a, each))
    return found


def crossing(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def check(items: list[Item], fixed: list[Fixed], packing: Packing) -> None:
    assert len(packing.offsets) == len(items)
    assert packing.peak == max((o + i.size for i, o in zip(items, packing.offsets, strict=True)), default=0)
    assert all(o >= 0 and o % i.align == 0 for i, o in zip(items, packing.offsets, strict=True))
    assert wrong(items, fixed, packing) == []


def painted(items: list[Item], fixed: list[Fixed]) -> list[int]:
    """Bytes in use at each position in the fullest of 128 partitions, each of which is looked at."""
    found = []
    for position in range(POSITIONS):
        worst = 0
        for partition in range(128):
            own = [i for i in items if i.start <= partition < i.start + i.partitions]
            taken = {
                byte
                for each in fixed
                if each.first <= position <= each.last and each.partition <= partition < each.partition_end
                for byte in range(each.start, each.end)
            }
            worst = max(worst, len(taken) + sum(i.size for i in own if i.first <= position <= i.last))
        found.append(worst)
    return found


# --- items


@given(ITEMS, FIXED, st.sampled_from([150, 400, 1 << 20]))
def test_tight(items: list[Item], fixed: list[Fixed], limit: int) -> None:
    least = int(load(items, fixed, POSITIONS).max())
    check(items, fixed, pack_tight(items, fixed, Room(limit, 0, HALF), least))


@given(ITEMS, FIXED, st.sampled_from([150, 300, 600, 100_000]))
def test_rotating(items: list[Item], fixed: list[Fixed], limit: int) -> None:
    packing = pack_rotating(items, fixed, Room(limit, 0, HALF))
    if packing is None:
        assert limit < 100_000, "there is room for each in a place of its own"
        return
    check(items, fixed, packing)
    assert packing.peak <= limit


def test_many_items_of_many_slices() -> None:
    """As above with far more items than one slice holds, of short and of long lives."""
    rng = random.Random(3)
    for _ in range(4):
        items = []
        for _ in range(150):
            first, start = rng.randrange(400), rng.choice([0, 0, HALF])
            count = rng.randint(1, HALF if start else rng.choice([HALF, 128]))
            life = rng.choice([3, 10, 200])
            items.append(Item(first, first + rng.randrange(life), rng.randint(1, 60), count, 4, start))
        tight = pack_tight(items, [], Room(1 << 20, 0, HALF), int(load(items, [], 700).max()))
        rotating = pack_rotating(items, [], Room(2 * tight.peak, 0, HALF))
        check(items, [], tight)
        assert rotating is not None
        check(items, [], rotating)


def test_halves_share_bytes_and_whole_items_do_not() -> None:
    low, high = Item(0, 9, 60, HALF, 1), Item(0, 9, 60, HALF, 1, HALF)
    assert pack_tight([low, high], [], Room(100, 0, HALF), 60).offsets == (0, 0)
    both = Item(0, 9, 40, HALF + 1, 1)
    assert sorted(pack_tight([low, high, both], [], Room(100, 0, HALF), 100).offsets) in ([0, 0, 60], [0, 40, 40])


def test_a_fixed_interval_in_one_half_is_no_obstacle_in_the_other() -> None:
    low, high = Item(0, 9, 60, HALF, 1), Item(0, 9, 60, 1, 1, HALF)
    for partition, offsets in ((0, (50, 0)), (HALF - 1, (50, 0)), (HALF, (0, 50)), (HALF + 1, (0, 0))):
        fixed = Fixed(0, 9, 0, 50, partition, partition + 1)
        assert pack_tight([low, high], [fixed], Room(200, 0, HALF), 0).offsets == offsets


@given(ITEMS, FIXED)
def test_load_is_that_of_the_fullest_partition(items: list[Item], fixed: list[Fixed]) -> None:
    few, given = items[:8], fixed[:3]
    assert np.array_equal(load(few, given, POSITIONS), painted(few, given))


# --- programs


def crowded(rng: random.Random) -> Program:
    """Two to seven tensors, some with an address, that Vector uses in any order."""
    made = []
    for key in range(rng.randint(2, 7)):
        address = (rng.choice([0, 32, HALF]), rng.randrange(500)) if rng.random() < 0.15 else None
        partitions = rng.choice([16, 32] if address else [16, 32, HALF, HALF, HALF, HALF + 1, 128])
        made.append(buffer(key, rng.randint(100, 300 if address else 700), "sbuf", address, partitions))
    uses = [use(rng.choice(made), rng.choice([None, None, *made])) for _ in range(rng.randint(4, 16))]
    return program(Block(made, list(uses)), SMALL)


def check_placed(placed: Program, upper: frozenset[int]) -> None:
    """What was chosen, and nothing else, begins in the middle, where it may; whoever lives together shares no byte."""
    placement = placed.placement
    assert placement is not None
    assert {key for key, (partition, _) in placement.items() if partition} == upper
    assert all(placement[key][0] == HALF for key in upper)
    for (a, when_a), (b, when_b) in combinations(lives(placed.body).values(), 2):
        if when_a & when_b and not (a.address and b.address):
            assert not meet(box(a, placement), box(b, placement))
    sbuf = usage(placed, SMALL)[0]
    assert sbuf.bound <= sbuf.capacity
    assert (sbuf.peak or 0) <= sbuf.capacity


def test_random_programs() -> None:
    """Nothing is chosen where all fits; else tensors that may move, and those that are read together on one side."""
    overflowing = helped = 0
    for seed in range(300):
        made, context = crowded(random.Random(seed)), Context(SMALL)
        sbuf = usage(made, SMALL)[0]
        upper = upper_half(made, context)
        assert upper == upper_half(made, context)
        if sbuf.bound <= sbuf.capacity:
            assert not upper
            continue
        overflowing += 1
        if not upper:
            continue
        living = lives(made.body)
        assert all(living[number][0].address is None and living[number][0].partitions <= HALF for number in upper)
        helped += 1
        with suppress(VerificationError):
            check_placed(allocate(made, context, Layout(upper=upper)).program, upper)
    assert overflowing > 100
    assert helped > 40


def together(*made: Buffer) -> Program:
    """Vector writes all of them, and then again."""
    return program(Block(list(made), [use(each) for each in (*made, *made)]), SMALL)


def test_addresses_in_the_middle_of_the_lower_half_count() -> None:
    """Partition 0 alone has room for it, those from 32 on do not."""
    made = together(buffer(0, 600, partitions=HALF), buffer(1, 600, address=(32, 400), partitions=16))
    assert upper_half(made, Context(SMALL)) == {0}
    check_placed(allocate(made, Context(SMALL), Layout(upper=frozenset({0}))).program, frozenset({0}))


def test_addresses_in_the_upper_half_count() -> None:
    """The larger one would meet the one with an address there, the other one ends before it."""
    given = buffer(2, 900, address=(96, 0), partitions=16)
    made = together(buffer(0, 600, partitions=HALF), buffer(1, 500, partitions=16), given)
    assert upper_half(made, Context(SMALL)) == {1}
    check_placed(allocate(made, Context(SMALL), Layout(upper=frozenset({1}))).program, frozenset({1}))
