"""List scheduling: an order of instructions, and a queue for each, that keeps the engines busy."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from nki.passes.scheduling.dma_queues import Spread, Streams, Transfers
from nki.passes.scheduling.psum_pressure import Banks, Needs
from nki.passes.scheduling.ready_list import NEVER, ReadyList
from nki.spec.queue import DMA


class Task(NamedTuple):
    """What the scheduler sees of an instruction; times in ns.

    Attributes:
        queue: name of the engine's queue, or "dma" for any DMA queue.
        busy: how long the queue is occupied.
        latency: from then until others see the result.
        group: what the engine has to load before it can run this kind of instruction, or ""; activation tables.
        interval: of a transfer, for how long it would take all that the DMA queues share: bandwidth, and their trigger.
        moves: of a transfer, for how long it would take the bandwidth alone.
    """

    queue: str
    busy: float
    latency: float
    group: str = ""
    interval: float = 0.0
    moves: float = 0.0


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


class Heuristic(NamedTuple):
    """How the list scheduler decides where no way is the best for all programs.

    Attributes:
        window: how many positions an instruction may be ahead of the first one that is not scheduled yet; None for any
            number. A small window keeps values short-lived.
        patience: ns for which an engine rather waits for an instruction of its group than loads another one.
        written: among instructions that could start, take the one that the kernel has first, and not the most urgent
            one. What is begun is finished before something else is begun, so that results leave early.
        spare: how much room in PSUM is left for tensors that others wait for; see `schedule_within`.
    """

    window: int | None = None
    patience: float = 0.0
    written: bool = False
    spare: int = 0


BUSY = Heuristic()
"""The heuristic that does as much as possible at once."""


class Schedule(NamedTuple):
    """An order and the queue of each instruction, both by original position, and the estimated length in ns."""

    order: list[int]
    queues: list[str]
    makespan: float


def list_schedule(
    tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine, heuristic: Heuristic = BUSY
) -> Schedule:
    """Take, again and again, the instruction that can start first; among those of one queue the most urgent one.

    Urgent is what the longest chain of work depends on. An engine that would have to load another group takes that
    into account. Ties are broken by position, so that equal programs have equal schedules. PSUM counts as unlimited.
    """
    schedule = _Scheduler(tasks, producers, machine, heuristic, None).run()
    assert schedule is not None, "dependences point backwards, so that something is always ready"
    return schedule


def schedule_within(
    tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine, heuristic: Heuristic, psum: Needs
) -> Schedule | None:
    """A list schedule in which nothing begins in PSUM for which there is no room.

    Returns:
        A schedule, or None if it came to a state in which every instruction would need more PSUM than there is.
    """
    return _Scheduler(tasks, producers, machine, heuristic, Banks(psum, heuristic.spare)).run()


class _Scheduler:
    """The state of a list schedule: what each queue could take, and when the queues are free."""

    def __init__(
        self,
        tasks: Sequence[Task],
        producers: Sequence[Sequence[int]],
        machine: Machine,
        heuristic: Heuristic,
        banks: Banks | None,
    ) -> None:
        self._tasks = tasks
        self._banks = banks
        self._window = heuristic.window or len(tasks)
        self._first = 0
        self._done = [False] * len(tasks)
        self._held: list[int] = []
        self._signal = machine.signal
        self._consumers, self._missing = _invert(producers)
        written = heuristic.written
        self._urgency = [0.0] * len(tasks) if written else _urgency(tasks, self._consumers, machine.signal)
        self._ready_lists = {task.queue: ReadyList(machine.switch, heuristic.patience) for task in tasks}
        self._dma = self._ready_lists.get(DMA)
        self._transfers = Transfers(machine.dma)
        self._ready = [0.0] * len(tasks)
        self._queues = [task.queue for task in tasks]
        self._before: dict[int, str] = {}

    def run(self) -> Schedule | None:
        """Schedule everything."""
        for position, count in enumerate(self._missing):
            if not count:
                self._release(position)
        order: list[int] = []
        end = 0.0
        ready_lists = list(self._ready_lists.values())
        while len(order) < len(self._tasks):
            # A scan, because `next` of several lists changes in one step and there are only as many as engines. It
            # takes the first of equal ones, so that equal programs have equal schedules.
            ready_list = ready_lists[0]
            for other in ready_lists:
                if other.next < ready_list.next:
                    ready_list = other
            start = ready_list.next
            if start >= NEVER:
                return None
            position = ready_list.take(start)
            if self._banks is None or self._has_room(position, ready_list, start, self._banks):
                visible = self._place(position, ready_list, start)
                self._complete(position, visible)
                end = max(end, visible)
                order.append(position)
                self._advance(position)
            ready_list.look(self._transfers.free if ready_list is self._dma else ready_list.free)
        return Schedule(order, self._queues, end)

    def _has_room(self, position: int, ready_list: ReadyList, start: float, banks: Banks) -> bool:
        """Whether an instruction finds room for what it begins; otherwise it comes again when there is some."""
        when = banks.begin(position, start, self._urgency[position])
        # If the room comes at a known time it asks again then; otherwise it waits in `banks` until `end` names it.
        if start < when < NEVER:
            ready_list.add(position, when, self._urgency[position], self._tasks[position].group)
        return when <= start

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
        ready_list = self._ready_lists[task.queue]
        ready_list.add(position, self._ready[position], self._urgency[position], task.group)
        ready_list.look(self._transfers.free if ready_list is self._dma else ready_list.free)

    def _place(self, position: int, ready_list: ReadyList, start: float) -> float:
        """Occupy a queue; returns when the result is visible."""
        task = self._tasks[position]
        begin = max(start, self._ready[position]) + ready_list.switch_to(task.group)
        finish = begin + task.busy
        if task.queue == DMA:
            self._queues[position] = self._transfers.place(
                begin, self._ready[position], task.busy, task.interval, self._before.get(position)
            )
        else:
            ready_list.free = finish
        return finish + task.latency

    def _complete(self, position: int, visible: float) -> None:
        queue = self._tasks[position].queue
        elsewhere = visible + self._signal
        for consumer in self._consumers[position]:
            if queue == DMA == self._tasks[consumer].queue:
                self._before[consumer] = self._queues[position]
            # All DMA queues have one name here. Two transfers may be in different ones, so that no signal is spared.
            seen = visible if self._tasks[consumer].queue == queue != DMA else elsewhere
            self._ready[consumer] = max(self._ready[consumer], seen)
            self._missing[consumer] -= 1
            if not self._missing[consumer]:
                self._release(consumer)
        if self._banks is not None:
            for other in self._banks.end(position, elsewhere):
                self._release(other)


def in_order(
    tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine, *, spread: bool = True
) -> Schedule:
    """A schedule that keeps the order, with the same estimate as `list_schedule`.

    Args:
        spread: every transfer goes to the queue that is free first, so that many are in flight at once; otherwise those
            that wait for nothing but bandwidth follow each other, so that what comes first is there first.
    """
    free: dict[str, float] = {}
    group: dict[str, str] = {}
    queues = [task.queue for task in tasks]
    transfers = (Spread if spread else Streams)(machine.dma)
    visible = [0.0] * len(tasks)
    for position, task in enumerate(tasks):
        needs = producers[position]
        start = max(
            (visible[p] + (0.0 if queues[p] == task.queue else machine.signal) for p in needs),
            default=0.0,
        )
        if task.queue == DMA:
            before = [queues[p] for p in needs if tasks[p].queue == DMA]
            start, queues[position] = transfers.place(start, task.busy, task.interval, before[-1] if before else None)
        else:
            start = max(start, free.get(task.queue, 0.0))
            if task.group and group.get(task.queue) != task.group:
                group[task.queue] = task.group
                start += machine.switch
            free[task.queue] = start + task.busy
        visible[position] = start + task.busy + task.latency
    return Schedule(list(range(len(tasks))), queues, max(visible, default=0.0))


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
    # Backwards: consumers come later in the segment, so that theirs is known; one step for each dependence.
    for position in range(len(tasks) - 1, -1, -1):
        task = tasks[position]
        queue = task.queue
        tail = 0.0
        for consumer in consumers[position]:
            beyond = urgency[consumer] if tasks[consumer].queue == queue != DMA else urgency[consumer] + signal
            tail = max(tail, beyond)
        urgency[position] = task.busy + task.latency + tail
    return urgency
