"""The longest common subsequence of two sequences of keys, with bit vectors: a row of the table is one whole number.

After Hyyrö, "Bit-parallel LCS-length computation revisited" (2004). Rows that would take too much memory are halved as
Hirschberg does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

MOST_CELLS = 1 << 31
"""Bits of the rows that are kept at once."""

Keys = Sequence[Hashable]


def common(first: Keys, second: Keys) -> list[tuple[int, int]]:
    """Positions of a longest common subsequence in both, ascending."""
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    end = 0
    while end < min(len(first), len(second)) - start and first[-1 - end] == second[-1 - end]:
        end += 1
    middle = _longest(first[start : len(first) - end], second[start : len(second) - end])
    found = [(at, at) for at in range(start)]
    found += [(start + a, start + b) for a, b in middle]
    return found + [(len(first) - at, len(second) - at) for at in range(end, 0, -1)]


def _longest(first: Keys, second: Keys) -> list[tuple[int, int]]:
    if not first or not second:
        return []
    if len(first) * len(second) > MOST_CELLS and len(first) > 1:
        half = len(first) // 2
        before = _lengths(first[:half], second)
        after = _lengths(first[half:][::-1], second[::-1])[::-1]
        cut = int(np.argmax(before + after))
        left, right = common(first[:half], second[:cut]), common(first[half:], second[cut:])
        return left + [(half + a, cut + b) for a, b in right]
    return _trace(_rows(first, second), len(second))


def _rows(first: Keys, second: Keys) -> list[int]:
    """For each prefix of `first`, where the length grows along `second`: there the bit is 0."""
    places: dict[Hashable, int] = {}
    for at, key in enumerate(second):
        places[key] = places.get(key, 0) | 1 << at
    row = full = (1 << len(second)) - 1
    rows = [full]
    for key in first:
        matches = row & places.get(key, 0)
        row = ((row + matches) | (row - matches)) & full
        rows.append(row)
    return rows


def _lengths(first: Keys, second: Keys) -> np.ndarray:
    """Length of the longest common subsequence with each prefix of `second`, from the empty one on."""
    last = _rows(first, second)[-1]
    data = np.frombuffer(last.to_bytes(len(second) // 8 + 1, "little"), np.uint8)
    grows = 1 - np.unpackbits(data, bitorder="little")[: len(second)].astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(grows)])


def _trace(rows: list[int], size: int) -> list[tuple[int, int]]:
    found = []
    row, column = len(rows) - 1, size
    while row and column:
        if rows[row] >> (column - 1) & 1:
            column -= 1
            continue
        row -= 1
        if row == 0 or rows[row] >> (column - 1) & 1:
            column -= 1
            found.append((row, column))
    return found[::-1]


MOST_SHIFTED = 32
"""Neighbours with equal keys among which a gap is moved."""

Ties = list[tuple[int, int]]


class Side(NamedTuple):
    """A sequence: the key of each element, when it begins, and when its result is there."""

    keys: Keys
    starts: Sequence[float]
    ends: Sequence[float]


def aligned(first: Side, second: Side) -> Ties:
    """A longest common subsequence; where keys leave it open which of equal neighbours is missing, times decide."""
    ties = common(first.keys, second.keys)
    return _moved(_moved(ties, (first, second), 0), (first, second), 1)


def _moved(ties: Ties, sides: tuple[Side, Side], side: int) -> Ties:
    """Move the elements of one side that have no partner to where the times between the others agree best."""
    ties = list(ties)
    partner = {tie[side]: at for at, tie in enumerate(ties)}
    for hole in range(len(sides[side].keys)):
        block = [] if hole in partner else _block(ties, partner, hole, sides[side].keys, side)
        if not block:
            continue
        own = sorted([hole, *(ties[at][side] for at in block)])
        theirs = [ties[at][1 - side] for at in block]
        misfits = [
            _misfit([*own[:gap], *own[gap + 1 :]], theirs, sides[side], sides[1 - side]) for gap in range(len(own))
        ]
        if min(misfits) >= misfits[own.index(hole)]:
            continue
        own.pop(misfits.index(min(misfits)))
        for at in block:
            del partner[ties[at][side]]
        for at, mine, other in zip(block, own, theirs, strict=True):
            ties[at] = (mine, other) if side == 0 else (other, mine)
            partner[mine] = at
    return ties


def _without(own: list[int], gap: int) -> list[int]:
    return [*own[:gap], *own[gap + 1 :]]


def _block(ties: Ties, partner: dict[int, int], hole: int, keys: Keys, side: int) -> list[int]:
    """Ties on both sides of an element without a partner, without a gap between them and with its key."""
    found: list[int] = []
    for step in (-1, 1):
        at = hole + step
        while at in partner and keys[at] == keys[hole] and abs(at - hole) <= MOST_SHIFTED:
            found.append(partner[at])
            at += step
    return sorted(found)


def _misfit(own: list[int], theirs: list[int], mine: Side, other: Side) -> float:
    """How far the times between neighbours are from those of the other side."""
    total = 0.0
    for (a, b), (c, d) in zip(pairwise(own), pairwise(theirs), strict=True):
        total += abs((mine.starts[b] - mine.starts[a]) - (other.starts[d] - other.starts[c]))
        total += abs((mine.ends[b] - mine.ends[a]) - (other.ends[d] - other.ends[c]))
    return total


def equals(first: Side, second: Side) -> Ties:
    """Pair elements that all have one key: in their order, and where one side has fewer, as times agree best.

    The cost of a pairing is how far the times between neighbours are from those of the other side, so that neither
    where timelines begin nor how far they drift apart counts. Found for every number of elements that were left out so
    far (dynamic programming).
    """
    if len(first.keys) < len(second.keys):
        return [(a, b) for b, a in equals(second, first)]
    count, missing = len(second.keys), len(first.keys) - len(second.keys)
    if not missing or count * (missing + 1) > MOST_CHOICES:
        return [(at, at) for at in range(count)]
    mine, theirs = np.array([first.starts, first.ends]), np.array([second.starts, second.ends])
    costs, steps = np.zeros(missing + 1), np.zeros((count, missing + 1), np.int32)
    for at in range(1, count):
        found = np.full((min(MOST_SKIPPED, missing) + 1, missing + 1), np.inf)
        gap = theirs[:, at] - theirs[:, at - 1]
        for skip in range(len(found)):  # between the element before and this one
            before = np.arange(missing + 1 - skip)
            own = mine[:, at + skip + before] - mine[:, at - 1 + before]
            found[skip, skip:] = costs[: missing + 1 - skip] + np.abs(own - gap[:, None]).sum(axis=0)
        steps[at] = np.argmin(found, axis=0)
        costs = np.min(found, axis=0)
    left = int(np.argmin(costs))
    ties = []
    for at in range(count - 1, -1, -1):
        ties.append((at + left, at))
        left -= int(steps[at, left])
    return ties[::-1]


MOST_CHOICES = 1 << 25
"""Elements of the shorter side times those that are missing, up to which times decide."""
MOST_SKIPPED = 16
"""Elements in a row that may be missing."""


def ascending(values: Sequence[int]) -> set[int]:
    """Positions of a longest ascending subsequence."""
    tails: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for at, value in enumerate(values):
        place = bisect_left(tails, value)
        before.append(last[place - 1] if place else -1)
        tails[place : place + 1] = [value]
        last[place : place + 1] = [at]
    found: set[int] = set()
    at = last[-1] if last else -1
    while at >= 0:
        found.add(at)
        at = before[at]
    return found
