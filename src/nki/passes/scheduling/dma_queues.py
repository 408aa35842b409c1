"""DMA queues for a scheduler: which one takes a transfer, and when the next one can start."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from nki.passes.scheduling.ready_list import NEVER


class Transfers:
    """The DMA queues, which share bandwidth.

    Transfers in flight together all get slower, also the one that is needed first. So transfers that could start
    earlier than there is bandwidth follow each other in few queues, and those that start as soon as their data is ready
    go to other queues, where they hold nobody up if that is later than expected.

    Attributes:
        free: ns, when the next transfer can start.
    """

    __slots__ = ("_ends", "_names", "_number", "_streams", "free")

    def __init__(self, names: Sequence[str]) -> None:
        self.free = 0.0
        self._names = names
        self._number = {name: number for number, name in enumerate(names)}
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
        best = self._take(start, ready, busy, before)
        self.free = max(start + interval, min(self._ends)) if interval else min(self._ends)
        return self._names[best]

    def follow(self, start: float, ready: float, busy: float, before: str | None) -> tuple[float, str]:
        """Begin a transfer that does not come in the order of starts; returns start and queue.

        The start is later if no queue is free by then.
        """
        start = max(start, min(self._ends))
        return start, self._names[self._take(start, ready, busy, before)]

    def _take(self, start: float, ready: float, busy: float, before: str | None) -> int:
        """The number of the queue that takes a transfer."""
        ends, streams = self._ends, self._streams
        waits = 0.0 < start <= ready
        if waits and before is not None and ends[self._number[before]] <= start:
            best = self._number[before]
        elif waits:
            best = self._first_free(start)
        else:
            best = self._stream(start)
        ends[best], streams[best] = start + busy, not waits
        return best

    def _first_free(self, start: float) -> int:
        """For a transfer that waits: the queue that is free for longest, one without a stream if there is one."""
        best, stream, since = -1, True, NEVER
        for number, (other, end) in enumerate(zip(self._streams, self._ends, strict=True)):
            if end <= start and (other < stream or (other == stream and end < since)):
                best, stream, since = number, other, end
        return best

    def _stream(self, start: float) -> int:
        """For a transfer that waits for bandwidth only: the queue in which it follows others.

        A stream goes on in the queue of a stream that ended last, else in one that was never used: all others stay free
        for transfers that start when their data is ready.
        """
        latest = max(self._ends)
        last = self._ends.index(latest)
        if 0.0 < latest <= start and self._streams[last]:
            return last  # all are free, and no stream ended later
        best, stream, since = -1, False, -1.0
        for number, (other, end) in enumerate(zip(self._streams, self._ends, strict=True)):
            if end > start or other < stream:
                continue
            used = end or NEVER  # never is as late as can be
            if other > stream or used > since:
                best, stream, since = number, other, used
        return best


class Spread:
    """Transfers in the order of the kernel, each in the queue that is free first: many are in flight at once."""

    def __init__(self, names: Sequence[str]) -> None:
        self._servers = [(0.0, name) for name in names]
        heapify(self._servers)
        self._moved = 0.0

    def place(self, ready: float, busy: float, interval: float, before: str | None) -> tuple[float, str]:
        """Start and queue of a transfer; `before`, where what it waits for is, makes no difference."""
        begin, queue = heappop(self._servers)
        self._moved += interval
        start = max(ready, begin, self._moved - busy)
        heappush(self._servers, (start + busy, queue))
        return start, queue


class Streams:
    """Transfers in the order of the kernel: those that wait only for bandwidth follow each other in few queues."""

    def __init__(self, names: Sequence[str]) -> None:
        self._transfers = Transfers(names)
        self._moved = 0.0

    def place(self, ready: float, busy: float, interval: float, before: str | None) -> tuple[float, str]:
        """Start and queue of a transfer; see `Transfers.place`."""
        start = max(ready, self._moved)
        self._moved += interval
        return self._transfers.follow(start, ready, busy, before)
