"""Semaphore waits: the fewest that make every dependence hold, whatever the queues' relative speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nki.spec.program import Sync, Wait


class Synchronized(NamedTuple):
    """A segment with its waits.

    Attributes:
        queues: of each instruction, in the order that was given.
        awaited: for each instruction the earlier positions whose completion it waits for, one of each queue.
        signals: whether another queue waits for its completion.
        crossing: dependences between instructions of different queues.
        waits: those that needed a wait; the others are implied.
    """

    queues: Sequence[str]
    awaited: list[tuple[int, ...]]
    signals: list[bool]
    crossing: int
    waits: int

    @property
    def syncs(self) -> list[Sync]:
        """One for each instruction: waits count the signals that a queue has given."""
        given: dict[str, int] = {}
        counts: list[int] = []
        syncs: list[Sync] = []
        for queue, asked, signal in zip(self.queues, self.awaited, self.signals, strict=True):
            waits = sorted([Wait(self.queues[producer], counts[producer]) for producer in asked]) if asked else ()
            syncs.append(Sync(queue, tuple(waits), signal))
            if signal:
                given[queue] = given.get(queue, 0) + 1
            counts.append(given.get(queue, 0))
        return syncs


def synchronize(queues: Sequence[str], producers: Sequence[Sequence[int]]) -> Synchronized:
    """Waits for the instructions of a segment.

    A queue knows what has completed: its own earlier instructions, what it waited for, and what those had waited for in
    turn. A producer that is known needs no wait. Producers are asked latest first, because what comes later knows more.

    Args:
        queues: of each instruction, in the order in which each queue takes them.
        producers: for each instruction the earlier positions that must complete before it starts.
    """
    number = {name: index for index, name in enumerate(sorted(set(queues)))}
    lanes = [number[name] for name in queues]
    known = [[0] * len(number) for _ in number]  # by each queue of each queue: how many of its instructions completed
    place: list[int] = []  # of each instruction in its queue, from 1
    after: list[list[int]] = []  # what is known when an instruction completes, if another queue asks about it
    awaited: list[tuple[int, ...]] = []
    signals = [False] * len(lanes)
    watched = _watched(lanes, producers)
    crossing = waits = 0
    for position, (lane, before) in enumerate(zip(lanes, producers, strict=True)):
        mine = known[lane]
        asked: list[int] = []
        for producer in sorted(before, reverse=True) if len(before) > 1 else before:
            other = lanes[producer]
            if other == lane:
                continue
            crossing += 1
            if mine[other] < place[producer]:
                asked.append(producer)
                signals[producer] = True
                # What the producer's queue knew by then as well: a chain of waits needs no wait for its far end.
                _learn(mine, after[producer])
        waits += len(asked)
        awaited.append(tuple(asked) if len(asked) <= 1 else _latest(asked, lanes))
        mine[lane] += 1
        place.append(mine[lane])
        after.append(mine.copy() if watched[position] else [])
    return Synchronized(queues, awaited, signals, crossing, waits)


def _learn(mine: list[int], theirs: Sequence[int]) -> None:
    """Know what another queue knows."""
    for queue, reached in enumerate(theirs):
        if reached > mine[queue]:
            mine[queue] = reached


def _latest(asked: Sequence[int], lanes: Sequence[int]) -> tuple[int, ...]:
    """The last one of each queue: it completes after the others, and gives the most signals."""
    last: dict[int, int] = {}
    for producer in asked:
        last[lanes[producer]] = max(last.get(lanes[producer], -1), producer)
    return tuple(last.values())


def _watched(lanes: Sequence[int], producers: Sequence[Sequence[int]]) -> list[bool]:
    """Which instructions another queue asks about."""
    watched = [False] * len(lanes)
    for lane, before in zip(lanes, producers, strict=True):
        for producer in before:
            if lanes[producer] != lane:
                watched[producer] = True
    return watched
