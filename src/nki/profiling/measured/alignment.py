"""The longest common subsequence of two sequences of keys, with bit vectors: a row of the table is one whole number.

After Hyyrö, "Bit-parallel LCS-length computation revisited" (2004). Rows that would take too much memory are halved as
Hirschberg does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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
