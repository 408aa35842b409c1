"""DMA transfers that share the DMA engines of a core.

Alone, a transfer takes the time of its step. Its demand is the part of the aggregate rate that it uses meanwhile: a
transfer of few partitions occupies few engines, and one that latency bounds leaves room too. As long as the demands of
the transfers in flight add up to at most 1 they do not see each other; beyond that, all slow down in proportion, as
engines that take turns among their queues have it (nki-dma-overview.rst, DMA Queues: round robin). The engines of a
core are the only limit, each at its rate for the direction: the HBM of a stack serves all its cores at that rate.
"""

from __future__ import annotations

from heapq import heappop, heappush

NEVER = float("inf")


class Transfers:
    """Transfers in flight on one core.

    The work of all proceeds at one rate, so that they end in the order of the work at which they end: a clock of work
    instead of time makes every arrival and end O(log n).

    Attributes:
        next: when the next transfer ends, if none begins before.
        busy: ns with at least one transfer in flight, up to the last end.
    """

    __slots__ = ("_demand", "_ends", "_now", "_rate", "_since", "_work", "busy", "next")

    def __init__(self) -> None:
        self.next = NEVER
        self.busy = 0.0
        self._ends: list[tuple[float, int, float]] = []
        self._demand = 0.0
        self._rate = 1.0
        self._work = 0.0
        self._now = 0.0
        self._since = 0.0

    def begin(self, now: float, number: int, ns: float, demand: float) -> None:
        """A transfer that takes `ns` alone; `number` is its name."""
        if self._ends:
            self._work += (now - self._now) * self._rate
            self._demand += demand
        else:
            # Nothing is in flight: both sums begin anew, so that rounding errors do not add up over a program.
            self._work, self._demand, self._since = 0.0, demand, now
        self._now = now
        heappush(self._ends, (self._work + ns, number, demand))
        self._plan()

    def end(self) -> tuple[float, int]:
        """The next end and the transfer that ends then."""
        now = self.next
        self._work, number, demand = heappop(self._ends)
        self._demand -= demand
        self._now = now
        if not self._ends:
            self.busy += now - self._since
        self._plan()
        return now, number

    def _plan(self) -> None:
        self._rate = 1.0 / self._demand if self._demand > 1.0 else 1.0
        self.next = self._now + max(0.0, self._ends[0][0] - self._work) / self._rate if self._ends else NEVER
