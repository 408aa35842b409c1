"""A queue for the list scheduler: which of its instructions comes next, and when it could start."""

from __future__ import annotations

from heapq import heappop, heappush

NEVER = float("inf")
_NEAR = 16
"""Instructions among those to come in which a patient engine looks for one of its group."""


Waiting = tuple[float, int, float, str]
"""ns from which on an instruction could start, its position, its urgency with the sign changed, and its group."""


class ReadyList:
    """Instructions of one queue whose producers are scheduled: those that could start now, and those that could later.

    All are of one group, which is loaded once.

    Attributes:
        free: ns, when the queue is.
        next: when its next instruction could start, as of the last `look`.
        waiting: what could start later, by when it could.
    """

    __slots__ = ("_ready", "free", "loaded", "next", "switch", "waiting")

    def __init__(self, switch: float) -> None:
        self.free = 0.0
        self.next = NEVER
        self.switch = switch
        self.loaded = ""
        self.waiting: list[Waiting] = []
        self._ready: list[tuple[float, int]] = []

    def look(self) -> None:
        """Find out when its next instruction could start."""
        free = self.free
        if not self._ready:
            if not self.waiting:
                self.next = NEVER
                return
            first = self.waiting[0][0]
            if first > free:
                free = first
        self.next = free

    def add(self, entry: Waiting) -> None:
        """One more instruction could start; `next` stays what `look` would make it."""
        heappush(self.waiting, entry)
        if not self._ready:
            ready, free = entry[0], self.free
            begin = ready if ready > free else free
            if begin < self.next:
                self.next = begin

    def take(self, now: float) -> int:
        """Remove the most urgent of the instructions that can start by then."""
        waiting, ready = self.waiting, self._ready
        while waiting and waiting[0][0] <= now:
            _, position, urgency, _ = heappop(waiting)
            if not ready and not (waiting and waiting[0][0] <= now):
                return position
            heappush(ready, (urgency, position))
        return heappop(ready)[1]

    def switch_to(self, group: str) -> float:
        """ns to load a group."""
        if not group or group == self.loaded:
            return 0.0
        self.loaded = group
        return self.switch


class GroupedReadyList(ReadyList):
    """A ready list of several groups; of tasks that could start now there is a heap for each group.

    Attributes:
        patience: see `nki.passes.scheduling.list_schedule.Heuristic`.
    """

    __slots__ = ("groups", "patience")

    def __init__(self, switch: float, patience: float) -> None:
        super().__init__(switch)
        self.patience = patience
        self.groups: dict[str, list[tuple[float, int]]] = {}

    def add(self, entry: Waiting) -> None:
        """One more instruction could start."""
        heappush(self.waiting, entry)
        self.look()

    def look(self) -> None:
        """Find out when its next instruction could start."""
        free = self.free
        if not self.groups:
            if not self.waiting:
                self.next = NEVER
                return
            free = max(free, self.waiting[0][0])
        self.next = self._patient(free) if self.patience and self.loaded and self.loaded not in self.groups else free

    def _patient(self, free: float) -> float:
        """When an instruction of the loaded group can start, if that is soon; the look ahead is short."""
        # The front of a heap is not sorted, only nearly so. A miss costs the load of a group, no more.
        near = [ready for ready, _, _, group in self.waiting[:_NEAR] if group == self.loaded]
        soon = max(free, min(near, default=free))
        return soon if soon <= free + self.patience else free

    def take(self, now: float) -> int:
        """Remove the most urgent of the instructions that can start by then."""
        waiting, groups = self.waiting, self.groups
        while waiting and waiting[0][0] <= now:
            _, position, urgency, group = heappop(waiting)
            heappush(groups.setdefault(group, []), (urgency, position))
        if len(groups) == 1:
            (best,) = groups
        elif self.patience and self.loaded in groups:
            best = self.loaded
        else:
            # Urgency and loading are both ns: another group goes first if it is more urgent by more than its load
            # takes.
            best = min(groups, key=lambda group: (groups[group][0][0] + self._cost(group), groups[group][0][1]))
        heap = groups[best]
        position = heappop(heap)[1]
        if not heap:
            del groups[best]
        return position

    def _cost(self, group: str) -> float:
        return self.switch if group and group != self.loaded else 0.0
