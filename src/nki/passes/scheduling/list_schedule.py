"""List scheduling: an order of instructions, and a queue for each, that keeps the engines busy."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from nki.core.locks import cached_property
from nki.passes.scheduling.dma_queues import Spread, Streams, Transfers
from nki.passes.scheduling.psum_pressure import Banks, Needs
from nki.passes.scheduling.ready_list import NEVER, GroupedReadyList, ReadyList
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
    return Dependent(tasks, producers, machine).list_schedule(heuristic)


def schedule_within(
    tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine, heuristic: Heuristic, psum: Needs
) -> Schedule | None:
    """A list schedule in which nothing begins in PSUM for which there is no room.

    Returns:
        A schedule, or None if it came to a state in which every instruction would need more PSUM than there is.
    """
    return Dependent(tasks, producers, machine).schedule_within(heuristic, psum)


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
    visible: list[float] = []
    signal, end = machine.signal, 0.0
    for position, ((queue, busy, latency, wanted, interval, _), needs) in enumerate(zip(tasks, producers, strict=True)):
        start = 0.0
        for producer in needs:
            # Where a transfer went is known by now, so that its queue is never that of an engine.
            seen = visible[producer] if queues[producer] == queue else visible[producer] + signal
            if seen > start:
                start = seen
        if queue == DMA:
            before = [queues[producer] for producer in needs if tasks[producer].queue == DMA]
            start, queues[position] = transfers.place(start, busy, interval, before[-1] if before else None)
        else:
            start = max(start, free.get(queue, 0.0))
            if wanted and group.get(queue) != wanted:
                group[queue] = wanted
                start += machine.switch
            free[queue] = start + busy
        done = start + busy + latency
        visible.append(done)
        if done > end:
            end = done
    return Schedule(list(range(len(tasks))), queues, end)


class Dependent:
    """Instructions with what they depend on, to be scheduled in several ways.

    Attributes:
        tasks: the instructions.
        machine: that runs them.
        queues: of each instruction; "dma" for a transfer.
        consumers: for each instruction those that depend on it, and whether that one sees the result without a signal.
            Two transfers may be in different queues, so that no signal is spared.
        chained: for each transfer the transfers that depend on it.
        missing: how many instructions each one depends on.
        groups: of all instructions of each queue.
    """

    def __init__(self, tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine) -> None:
        self.tasks, self.machine = tasks, machine
        self.queues = queues = [task.queue for task in tasks]
        self.consumers: list[list[tuple[int, bool]]] = [[] for _ in tasks]
        self.chained: list[list[int]] = [[] for _ in tasks]
        for position, before in enumerate(producers):
            queue = queues[position]
            for producer in before:
                same = queues[producer] == queue
                self.consumers[producer].append((position, same and queue != DMA))
                if same and queue == DMA:
                    self.chained[producer].append(position)
        self.missing = [len(before) for before in producers]
        self.groups: dict[str, set[str]] = {queue: set() for queue in queues}
        for task in tasks:
            self.groups[task.queue].add(task.group)

    @cached_property
    def urgency(self) -> list[float]:
        """ns from the start of each instruction to the end of the longest chain that begins with it."""
        urgency = [0.0] * len(self.tasks)
        signal = self.machine.signal
        # Backwards: consumers come later in the segment, so that theirs is known; one step for each dependence.
        for position in range(len(urgency) - 1, -1, -1):
            tail = 0.0
            for consumer, near in self.consumers[position]:
                beyond = urgency[consumer] if near else urgency[consumer] + signal
                if beyond > tail:
                    tail = beyond
            task = self.tasks[position]
            urgency[position] = task.busy + task.latency + tail
        return urgency

    def list_schedule(self, heuristic: Heuristic) -> Schedule:
        """See `list_schedule`."""
        schedule = _Scheduler(self, heuristic, None).run()
        assert schedule is not None, "dependences point backwards, so that something is always ready"
        return schedule

    def schedule_within(self, heuristic: Heuristic, psum: Needs) -> Schedule | None:
        """See `schedule_within`."""
        return _Scheduler(self, heuristic, Banks(psum, heuristic.spare)).run()


class _Scheduler:
    """The state of a list schedule: what each queue could take, and when the queues are free."""

    def __init__(self, work: Dependent, heuristic: Heuristic, banks: Banks | None) -> None:
        tasks, machine = work.tasks, work.machine
        self._tasks, self._banks = tasks, banks
        self._consumers, self._chained = work.consumers, work.chained
        self._window = heuristic.window or len(tasks)
        self._reached = self._window  # the first position behind the window
        self._first = 0
        self._done = [False] * len(tasks)
        self._held: list[int] = []
        self._signal = machine.signal
        self._missing = work.missing.copy()
        self._urgency = [0.0] * len(tasks) if heuristic.written else work.urgency
        switch, patience = machine.switch, heuristic.patience
        lists = {
            queue: ReadyList(switch) if len(groups) == 1 else GroupedReadyList(switch, patience)
            for queue, groups in work.groups.items()
        }
        self._ready_lists = list(lists.values())
        self._list_of = [lists[queue] for queue in work.queues]
        self._dma = lists.get(DMA)
        self._transfers = Transfers(machine.dma)
        self._ready = [0.0] * len(tasks)
        self._queues = work.queues.copy()
        self._before: dict[int, str] = {}

    def run(self) -> Schedule | None:
        """Schedule everything."""
        for position, count in enumerate(self._missing):
            if not count:
                self._release(position)
        order: list[int] = []
        end = 0.0
        ready_lists, banks, count = self._ready_lists, self._banks, len(self._tasks)
        windowed = self._window < count
        while len(order) < count:
            # A scan, because `next` of several lists changes in one step and there are only as many as engines. It
            # takes the first of equal ones, so that equal programs have equal schedules.
            ready_list = ready_lists[0]
            start = ready_list.next
            for other in ready_lists:
                if other.next < start:
                    ready_list, start = other, other.next
            if start >= NEVER:
                return None
            position = ready_list.take(start)
            if banks is None or self._has_room(position, ready_list, start, banks):
                visible = self._place(position, ready_list, start)
                self._complete(position, visible)
                if visible > end:
                    end = visible
                order.append(position)
                if windowed:
                    self._advance(position)
            ready_list.look()
        return Schedule(order, self._queues, end)

    def _has_room(self, position: int, ready_list: ReadyList, start: float, banks: Banks) -> bool:
        """Whether an instruction finds room for what it begins; otherwise it comes again when there is some."""
        when = banks.begin(position, start, self._urgency[position])
        if when <= start:
            return True
        # If the room comes at a known time it asks again then; otherwise it waits in `banks` until `end` names it.
        if when < NEVER:
            heappush(ready_list.waiting, (when, position, -self._urgency[position], self._tasks[position].group))
        return False

    def _advance(self, position: int) -> None:
        """Move the window behind what is done, and let in what it reaches now."""
        done = self._done
        done[position] = True
        if position != self._first:
            return  # the window stays, and all that it reaches was let in
        first = position + 1
        while first < len(done) and done[first]:
            first += 1
        self._first, self._reached = first, first + self._window
        while self._held and self._held[0] < self._reached:
            self._release(heappop(self._held))

    def _release(self, position: int) -> None:
        """All producers are scheduled: hand it to its queue, unless it is too far ahead."""
        if position >= self._reached:
            heappush(self._held, position)
            return
        ready_list = self._list_of[position]
        ready_list.add((self._ready[position], position, -self._urgency[position], self._tasks[position][3]))

    def _place(self, position: int, ready_list: ReadyList, start: float) -> float:
        """Occupy a queue; returns when the result is visible."""
        _, busy, latency, group, interval, _ = self._tasks[position]
        ready = self._ready[position]
        begin = ready if ready > start else start
        if group:
            begin += ready_list.switch_to(group)
        finish = begin + busy
        if ready_list is self._dma:
            transfers = self._transfers
            self._queues[position] = transfers.place(begin, ready, busy, interval, self._before.get(position))
            ready_list.free = transfers.free
        else:
            ready_list.free = finish
        return finish + latency

    def _complete(self, position: int, visible: float) -> None:
        elsewhere = visible + self._signal
        ready, missing = self._ready, self._missing
        for consumer in self._chained[position]:
            self._before[consumer] = self._queues[position]
        for consumer, near in self._consumers[position]:
            seen = visible if near else elsewhere
            if seen > ready[consumer]:
                ready[consumer] = seen
            left = missing[consumer] - 1
            missing[consumer] = left
            if not left:
                self._release(consumer)
        if self._banks is not None:
            for other in self._banks.end(position, elsewhere):
                self._release(other)
