"""List scheduling: an order of instructions, and a queue for each, that keeps the engines busy."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from nki.passes.transfers import Transfers
from nki.spec.queue import DMA

_NEAR = 16
"""Instructions among those to come in which a patient engine looks for one of its group."""


class Task(NamedTuple):
    """What the scheduler sees of an instruction; times in ns.

    Attributes:
        queue: name of the engine's queue, or "dma" for any DMA queue.
        busy: how long the queue is occupied.
        latency: from then until others see the result.
        group: what the engine has to load before it can run this kind of instruction, or ""; activation tables.
        interval: of a transfer, for how long it would take all that the DMA queues share: bandwidth, and their trigger.
    """

    queue: str
    busy: float
    latency: float
    group: str = ""
    interval: float = 0.0


class Machine(NamedTuple):
    """What the scheduler knows of the hardware.

    Attributes:
        dma: names of the DMA queues.
        switch: ns for another group.
        signal: ns from a completion on one queue to a start on another.
    """

    dma: tuple[str, ...]
    switch: float
    signal: float


class Manner(NamedTuple):
    """How the list scheduler decides where no way is the best for all programs.

    Attributes:
        window: how many positions an instruction may be ahead of the first one that is not scheduled yet; None for any
            number. A small window keeps values short-lived.
        patience: ns for which an engine rather waits for an instruction of its group than loads another one.
    """

    window: int | None = None
    patience: float = 0.0


BUSY = Manner()
"""As much as possible at once."""


class Schedule(NamedTuple):
    """An order and the queue of each instruction, both by original position, and the estimated length in ns."""

    order: list[int]
    queues: list[str]
    makespan: float


def list_schedule(
    tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine, manner: Manner = BUSY
) -> Schedule:
    """Take, again and again, the instruction that can start first; among those of one queue the most urgent one.

    Urgent is what the longest chain of work depends on. An engine that would have to load another group takes that
    into account. Ties are broken by position, so that equal programs have equal schedules.
    """
    return _Scheduler(tasks, producers, machine, manner).run()


class _Scheduler:
    """The state of a list schedule: what each queue could take, and when the queues are free."""

    def __init__(
        self, tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine, manner: Manner
    ) -> None:
        self._tasks = tasks
        self._window = manner.window or len(tasks)
        self._first = 0
        self._done = [False] * len(tasks)
        self._held: list[int] = []
        self._signal = machine.signal
        self._consumers, self._missing = _invert(producers)
        self._urgency = _urgency(tasks, self._consumers, machine.signal)
        self._lanes = {task.queue: _Lane(machine.switch, manner.patience) for task in tasks}
        self._transfers = Transfers(machine.dma)
        self._ready = [0.0] * len(tasks)
        self._queues = [task.queue for task in tasks]
        self._before: dict[int, str] = {}

    def run(self) -> Schedule:
        """Schedule everything."""
        for position, count in enumerate(self._missing):
            if not count:
                self._release(position)
        order: list[int] = []
        end = 0.0
        while len(order) < len(self._tasks):
            lane, start = _first(self._lanes, self._transfers)
            position = lane.take(start)
            visible = self._place(position, lane, start)
            self._complete(position, visible)
            end = max(end, visible)
            order.append(position)
            self._advance(position)
        return Schedule(order, self._queues, end)

    def _advance(self, position: int) -> None:
        """Move the window behind what is done, and let in what it reaches now."""
        done = self._done
        done[position] = True
        while self._first < len(done) and done[self._first]:
            self._first += 1
        while self._held and self._held[0] < self._first + self._window:
            self._release(heappop(self._held))

    def _release(self, position: int) -> None:
        """All producers are scheduled: hand it to its queue, unless it is too far ahead."""
        if position >= self._first + self._window:
            heappush(self._held, position)
            return
        task = self._tasks[position]
        self._lanes[task.queue].add(position, self._ready[position], self._urgency[position], task.group)

    def _place(self, position: int, lane: _Lane, start: float) -> float:
        """Occupy a queue; returns when the result is visible."""
        task = self._tasks[position]
        finish = max(start, self._ready[position]) + lane.switch_to(task.group) + task.busy
        if task.queue == DMA:
            begin, ready = finish - task.busy, self._ready[position]
            self._queues[position] = self._transfers.place(
                begin, ready, task.busy, task.interval, self._before.get(position)
            )
        else:
            lane.free = finish
        return finish + task.latency

    def _complete(self, position: int, visible: float) -> None:
        queue = self._tasks[position].queue
        elsewhere = visible + self._signal
        for consumer in self._consumers[position]:
            if queue == DMA == self._tasks[consumer].queue:
                self._before[consumer] = self._queues[position]
            seen = visible if self._tasks[consumer].queue == queue != DMA else elsewhere
            self._ready[consumer] = max(self._ready[consumer], seen)
            self._missing[consumer] -= 1
            if not self._missing[consumer]:
                self._release(consumer)


def in_order(tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine) -> Schedule:
    """The same estimate for the order in which the kernel issued the instructions."""
    free: dict[str, float] = {}
    group: dict[str, str] = {}
    servers = [(0.0, name) for name in machine.dma]
    heapify(servers)
    moved = 0.0
    visible = [0.0] * len(tasks)
    queues = [task.queue for task in tasks]
    for position, task in enumerate(tasks):
        start = max(
            (visible[p] + (0.0 if queues[p] == task.queue else machine.signal) for p in producers[position]),
            default=0.0,
        )
        if task.queue == DMA:
            begin, queues[position] = heappop(servers)
            moved += task.interval
            start = max(start, begin, moved - task.busy)
            heappush(servers, (start + task.busy, queues[position]))
        else:
            start = max(start, free.get(task.queue, 0.0))
            if task.group and group.get(task.queue) != task.group:
                group[task.queue] = task.group
                start += machine.switch
            free[task.queue] = start + task.busy
        visible[position] = start + task.busy + task.latency
    return Schedule(list(range(len(tasks))), queues, max(visible, default=0.0))


def critical_path(tasks: Sequence[Task], producers: Sequence[Sequence[int]], signal: float) -> float:
    """ns of the longest chain of dependences."""
    consumers, _ = _invert(producers)
    return max(_urgency(tasks, consumers, signal), default=0.0)


class _Lane:
    """Instructions of one queue whose producers are scheduled: those that could start now, and those that could later.

    Of the former there is a heap for each group.
    """

    __slots__ = ("free", "groups", "loaded", "patience", "switch", "waiting")

    def __init__(self, switch: float, patience: float) -> None:
        self.free = 0.0
        self.switch = switch
        self.patience = patience
        self.loaded = ""
        self.waiting: list[tuple[float, int, float, str]] = []
        self.groups: dict[str, list[tuple[float, int]]] = {}

    def add(self, position: int, ready: float, urgency: float, group: str) -> None:
        heappush(self.waiting, (ready, position, urgency, group))

    def start(self, free: float) -> float | None:
        """When its next instruction could start; None if it has none."""
        if not self.groups:
            if not self.waiting:
                return None
            free = max(free, self.waiting[0][0])
        return self._patient(free) if self.patience and self.loaded and self.loaded not in self.groups else free

    def _patient(self, free: float) -> float:
        """When an instruction of the loaded group can start, if that is soon; the look ahead is short."""
        near = [ready for ready, _, _, group in self.waiting[:_NEAR] if group == self.loaded]
        soon = max(free, min(near, default=free))
        return soon if soon <= free + self.patience else free

    def take(self, now: float) -> int:
        """Remove the most urgent of the instructions that can start by then."""
        waiting, groups = self.waiting, self.groups
        while waiting and waiting[0][0] <= now:
            _, position, urgency, group = heappop(waiting)
            heappush(groups.setdefault(group, []), (-urgency, position))
        if self.patience and self.loaded in groups:
            best = self.loaded
        else:
            best = min(groups, key=lambda group: (groups[group][0][0] + self._cost(group), groups[group][0][1]))
        heap = groups[best]
        position = heappop(heap)[1]
        if not heap:
            del groups[best]
        return position

    def switch_to(self, group: str) -> float:
        """ns to load a group."""
        cost = self._cost(group)
        if group:
            self.loaded = group
        return cost

    def _cost(self, group: str) -> float:
        return self.switch if group and group != self.loaded else 0.0


def _first(lanes: dict[str, _Lane], transfers: Transfers) -> tuple[_Lane, float]:
    """The lane whose next instruction can start first, and when."""
    found, earliest = None, 0.0
    for name, lane in lanes.items():
        start = lane.start(transfers.free if name == DMA else lane.free)
        if start is not None and (found is None or start < earliest):
            found, earliest = lane, start
    assert found is not None, "dependences point backwards, so that something is always ready"
    return found, earliest


def _invert(producers: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[int]]:
    """The consumers of each instruction, and how many producers it has."""
    consumers: list[list[int]] = [[] for _ in producers]
    for position, before in enumerate(producers):
        for producer in before:
            consumers[producer].append(position)
    return consumers, [len(before) for before in producers]


def _urgency(tasks: Sequence[Task], consumers: Sequence[Sequence[int]], signal: float) -> list[float]:
    """ns from the start of each instruction to the end of the longest chain that begins with it."""
    urgency = [0.0] * len(tasks)
    for position in range(len(tasks) - 1, -1, -1):
        task = tasks[position]
        queue = task.queue
        tail = 0.0
        for consumer in consumers[position]:
            beyond = urgency[consumer] if tasks[consumer].queue == queue != DMA else urgency[consumer] + signal
            tail = max(tail, beyond)
        urgency[position] = task.busy + task.latency + tail
    return urgency
