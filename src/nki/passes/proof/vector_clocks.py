"""When the instructions of a synchronised segment run: for each one what has certainly completed when it starts."""

from __future__ import annotations

from typing import NamedTuple

from nki.passes.proof.conflicts import Clock, Doer
from nki.passes.proof.faults import Race, broken
from nki.spec.program import Issued, Sync


class SegmentRun(NamedTuple):
    """The instructions between two loops, and where they come in the walk over the program."""

    core: int
    walk: int
    items: list[Issued]
    sync: list[Sync]


class Clocks:
    """Clocks of all instructions of a segment, or why there are none.

    Attributes:
        doers: who each instruction is.
        clocks: for each instruction how many of every queue have certainly completed when it starts.
        faults: waits that never end.
    """

    def __init__(self, run: SegmentRun) -> None:
        self._run = run
        self._numbers: dict[str, int] = {}
        self._queues: list[list[int]] = []
        self._signals: list[list[int]] = []
        self.doers: list[Doer] = []
        for position, sync in enumerate(run.sync):
            queue = self._numbers.setdefault(sync.queue, len(self._queues))
            if queue == len(self._queues):
                self._queues.append([])
                self._signals.append([])
            self._queues[queue].append(position)
            if sync.signals:
                self._signals[queue].append(position)
            self.doers.append(Doer(position, queue, len(self._queues[queue])))
        self.clocks: list[Clock] = [()] * len(run.items)
        self.faults: list[Race] = []
        self._run_queues()

    def ordered(self, earlier: int, later: int) -> bool:
        """Whether one instruction has completed when another one of the block, later in it, starts."""
        _, queue, count = self.doers[earlier]
        return self.clocks[later][queue] >= count

    def over(self, every: int) -> list[Clock]:
        """For each block of so many positions what has completed before it and everything behind it starts."""
        found: list[Clock] = []
        least: list[int] = []
        for start in reversed(range(0, len(self.clocks), every)):
            block = self.clocks[start : start + every]
            # From the end, so that the least clock of all that is behind a block is known when the block is reached.
            least = [min(column) for column in zip(*block, *([least] if least else ()), strict=True)]
            found.append(least)
        return found[::-1]

    def _run_queues(self) -> None:
        """Let every queue run until it waits for something that has not happened; what is left waits for ever."""
        next_of = [0] * len(self._queues)
        done = [False] * len(self._run.items)
        last: list[list[int]] = [[0] * len(self._queues) for _ in self._queues]
        sleepers: dict[int, list[int]] = {}
        ready = list(range(len(self._queues)))
        while ready:
            queue = ready.pop()
            while next_of[queue] < len(self._queues[queue]):
                position = self._queues[queue][next_of[queue]]
                needed = self._needed(position)
                if needed is None:
                    return
                # A queue sleeps for one instruction at a time, and looks again when that has completed: at most once
                # per wait.
                missing = next((other for other in needed if not done[other]), None)
                if missing is not None:
                    sleepers.setdefault(missing, []).append(queue)
                    break
                last[queue] = self._join(last[queue], needed)
                last[queue][queue] = next_of[queue]
                # Both names mean one list; `_join` copies it before anything changes.
                self.clocks[position] = last[queue]
                done[position] = True
                next_of[queue] += 1
                ready += sleepers.pop(position, [])
        stuck = [self._queues[queue][at] for queue, at in enumerate(next_of) if at < len(self._queues[queue])]
        if stuck:
            self._deadlock(stuck, done)

    def _needed(self, position: int) -> list[int] | None:
        """The instructions whose completion the waits of an instruction mean; None if a signal does not exist."""
        needed = []
        for name, count in self._run.sync[position].waits:
            queue = self._numbers.get(name)
            signals = [] if queue is None else self._signals[queue]
            if count > len(signals):
                what = f"{count} signals of queue {name}, which gives {len(signals)}"
                self.faults.append(broken("signal", self._run.items[position], None, self._run.core, what))
                return None
            if count > 0:
                needed.append(signals[count - 1])
        return needed

    def _join(self, clock: list[int], needed: list[int]) -> list[int]:
        """A new clock, after some instructions have completed."""
        clock = clock.copy()
        for position in needed:
            _, queue, count = self.doers[position]
            # A count that is known came with the clock of that instruction or of a later one in its queue, which has it
            # all: clocks of a queue only grow. So there is nothing to join.
            if clock[queue] < count:
                theirs = self.clocks[position]
                clock = [a if a > b else b for a, b in zip(clock, theirs, strict=True)]
                clock[queue] = max(clock[queue], count)
        return clock

    def _deadlock(self, stuck: list[int], done: list[bool]) -> None:
        first = min(stuck)
        needed = self._needed(first) or []
        missing = next(other for other in needed if not done[other])
        run = self._run
        self.faults.append(broken("deadlock", run.items[first], run.items[missing], run.core))
