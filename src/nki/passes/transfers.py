"""DMA queues for a scheduler: which one takes a transfer, and when the next one can start."""

from __future__ import annotations

from collections.abc import Sequence


class Transfers:
    """The DMA queues, which share bandwidth.

    Transfers in flight together all get slower, also the one that is needed first. So transfers that could start
    earlier than there is bandwidth follow each other in few queues, and those that start as soon as their data is ready
    go to other queues, where they hold nobody up if that is later than expected.

    Attributes:
        free: ns, when the next transfer can start.
    """

    __slots__ = ("_ends", "_names", "_streams", "free")

    def __init__(self, names: Sequence[str]) -> None:
        self.free = 0.0
        self._names = names
        self._ends = [0.0] * len(names)
        self._streams = [False] * len(names)

    def place(self, start: float, ready: float, busy: float, interval: float, before: str | None) -> str:
        """Begin a transfer; returns the queue that takes it.

        Args:
            start, ready: when it begins, and when it could as far as its data is concerned.
            busy: ns that its queue moves it.
            interval: ns for which it would take all that the queues share.
            before: queue of a transfer that it waits for: in the same queue it follows without a signal.
        """
        ends, streams = self._ends, self._streams
        waits = 0.0 < start <= ready
        numbers = [number for number, end in enumerate(ends) if end <= start]
        follows = self._names.index(before) if before is not None else -1
        if waits and follows in numbers:
            best = follows
        elif waits:
            best = min(numbers, key=lambda number: (streams[number], ends[number]))
        else:
            best = max(numbers, key=lambda number: (streams[number], not ends[number], ends[number], -number))
        ends[best], streams[best] = start + busy, not waits
        self.free = max(start + interval, min(ends)) if interval else min(ends)
        return self._names[best]
