"""Intervals of time: their union, and a span that layers of intervals divide among themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint and ascending intervals that cover the same time."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def outside(intervals: Sequence[Interval], covered: Sequence[Interval]) -> list[Interval]:
    """What of some intervals is not covered; both are disjoint and ascending."""
    found, at = [], 0
    for start, end in intervals:
        while at < len(covered) and covered[at][1] <= start:
            at += 1
        here = at
        while start < end and here < len(covered) and covered[here][0] < end:
            low, high = covered[here]
            if low > start:
                found.append((start, low))
            start = max(start, high)
            here += 1
        if start < end:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """The sum of the lengths."""
    return sum(end - start for start, end in intervals)


def divided(span: Interval, layers: Sequence[tuple[str, Iterable[Interval]]]) -> dict[str, float]:
    """How much of a span belongs to each layer, an earlier one before a later one; the rest is "idle"."""
    found: dict[str, float] = {}
    covered: list[Interval] = []
    for name, intervals in layers:
        clipped = ((max(start, span[0]), min(end, span[1])) for start, end in intervals)
        free = outside(union(clipped), covered)
        if free:
            found[name] = found.get(name, 0.0) + length(free)
            covered = union([*covered, *free])
    found["idle"] = max(0.0, span[1] - span[0] - sum(found.values()))
    return found
