"""Semaphore waits: the fewest that make every dependence hold, whatever the queues' relative speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nki.spec.program import Sync, Wait


class Synchronized(NamedTuple):
    """A segment with its waits.

    Attributes:
        syncs: one for each instruction, in the order that was given.
        crossing: dependences between instructions of different queues.
        waits: those that needed a wait; the others are implied.
    """

    syncs: list[Sync]
    crossing: int
    waits: int


def synchronize(queues: Sequence[str], producers: Sequence[Sequence[int]]) -> Synchronized:
    """Waits for the instructions of a segment.

    A queue knows what has completed: its own earlier instructions, what it waited for, and what those had waited for in
    turn. A producer that is known needs no wait. Producers are asked latest first, because what comes later knows more.

    Args:
        queues: of each instruction, in the order in which each queue takes them.
        producers: for each instruction the earlier positions that must complete before it starts.
    """
    names = sorted(set(queues))
    number = {name: index for index, name in enumerate(names)}
    lanes = [number[name] for name in queues]
    place, length = _places(lanes, len(names))
    known = [[0] * len(names) for _ in names]
    after: list[list[int]] = []  # empty for those that no other queue asks about
    awaited: list[list[int]] = []
    watched = _watched(lanes, producers)
    signals = [False] * len(lanes)
    crossing = 0
    for position, lane in enumerate(lanes):
        mine = known[lane]
        asked = []
        before = producers[position]
        for producer in sorted(before, reverse=True) if len(before) > 1 else before:
            other = lanes[producer]
            if other == lane:
                continue
            crossing += 1
            if mine[other] < place[producer]:
                asked.append(producer)
                signals[producer] = True
                # Also what the producer's queue knew by then: a chain of waits needs no wait of its own for its far
                # end.
                mine[:] = map(max, mine, after[producer])
        awaited.append(asked)
        mine[lane] = place[position]
        after.append(mine.copy() if watched[position] else [])
    assert sum(length) == len(lanes), "every instruction has one place in one queue"
    syncs = _syncs(queues, awaited, signals, _counts(lanes, signals, len(names)))
    return Synchronized(syncs, crossing, sum(map(len, awaited)))


def _syncs(
    queues: Sequence[str], awaited: Sequence[Sequence[int]], signals: Sequence[bool], counts: Sequence[int]
) -> list[Sync]:
    return [
        Sync(name, _waits(asked, queues, counts) if asked else (), signals[position])
        for position, (name, asked) in enumerate(zip(queues, awaited, strict=True))
    ]


def _watched(lanes: Sequence[int], producers: Sequence[Sequence[int]]) -> list[bool]:
    """Which instructions another queue asks about."""
    watched = [False] * len(lanes)
    for lane, before in zip(lanes, producers, strict=True):
        for producer in before:
            if lanes[producer] != lane:
                watched[producer] = True
    return watched


def _places(lanes: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """For each instruction its place in its queue, from 1, and how long each queue is."""
    length = [0] * count
    place = []
    for lane in lanes:
        length[lane] += 1
        place.append(length[lane])
    return place, length


def _counts(lanes: Sequence[int], signals: Sequence[bool], count: int) -> list[int]:
    """For each instruction how many signals its queue has given when it has completed."""
    given = [0] * count
    counts = []
    for lane, signal in zip(lanes, signals, strict=True):
        given[lane] += signal
        counts.append(given[lane])
    return counts


def _waits(asked: Sequence[int], queues: Sequence[str], counts: Sequence[int]) -> tuple[Wait, ...]:
    """One wait for each queue, for the most signals; later waits made some earlier ones superfluous."""
    most: dict[str, int] = {}
    for producer in asked:
        queue = queues[producer]
        most[queue] = max(most.get(queue, 0), counts[producer])
    return tuple(Wait(queue, most[queue]) for queue in sorted(most))
