"""Ranks one by one, as a display has them: which are shown, what each does, and where they meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nki.profiling.ranks.rows import Communicated, StepTimes


class Meeting(NamedTuple):
    """A collective of some ranks.

    Attributes:
        collective: its number.
        start_ns: when data began to move.
        last: the rank that was ready last.
        members: of the ranks that are shown those that meet, each with the number of its communication.
    """

    collective: int
    start_ns: float
    last: int
    members: Mapping[int, int]


def shown_of(profile: StepTimes, most: int) -> list[int]:
    """At most so many ranks: all, or one of each class and then the lowest ones."""
    if profile.ranks <= most:
        return list(range(profile.ranks))
    late = sorted(profile.classes, key=lambda each: (-each.end_ns, each.ranks))
    found = [each.ranks[0] for each in late[:most]]
    more = (rank for rank in range(profile.ranks) if rank not in found)
    return sorted([*found, *(rank for rank, _ in zip(more, range(most - len(found)), strict=False))])


def meetings_of(profile: StepTimes, ranks: Sequence[int]) -> Iterator[Meeting]:
    """The meetings of some ranks, in the order of time."""
    groups = [_callers(each.operation, lists) for each, lists in zip(profile.collectives, profile.groups, strict=True)]
    classes = {rank: each for each in profile.classes for rank in each.ranks}
    found: dict[tuple[float, tuple[int, ...]], Meeting] = {}
    for rank in ranks:
        for number, made in enumerate(classes[rank].communications):
            group = groups[made.collective].get(rank, (rank,))
            key = made.start_ns, group
            if key not in found:
                found[key] = Meeting(made.collective, made.start_ns, _last(profile, made, group), {})
            found[key] = found[key]._replace(members={**found[key].members, rank: number})
    return iter(sorted(found.values(), key=lambda each: each.start_ns))


def _callers(operation: str, lists: Sequence[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """The list of each rank that calls a collective; a message is called differently at its two ends."""
    side = {"send": 0, "receive": 1}.get(operation)
    return {rank: group for group in lists for rank in (group if side is None else group[side : side + 1])}


def _last(profile: StepTimes, made: Communicated, group: Sequence[int]) -> int:
    late = set(profile.classes[made.last].ranks)
    return next((rank for rank in group if rank in late), group[0])


def coalesced(work: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most so many intervals of work; the shortest pauses between them are left out."""
    rows = np.array(work, float).reshape(-1, 2)
    if len(rows) <= most:
        return [(start, end) for start, end in rows.tolist()]
    gaps = rows[1:, 0] - rows[:-1, 1]
    kept = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
    starts = np.concatenate(([rows[0, 0]], rows[kept + 1, 0]))
    ends = np.concatenate((rows[kept, 1], [rows[-1, 1]]))
    return [(start, end) for start, end in np.column_stack((starts, ends)).tolist()]
