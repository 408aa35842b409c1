"""Runs scheduled programs in any order that their queues and signals allow, where plain runs follow the block's order.

What the schedule does not order may happen either way on the hardware, so a correct schedule gives the same bytes under
every `Policy`. Two cores run as in a plain launch, each in an order of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal, NamedTuple

import numpy as np

from nki.core.errors import ExecutionError
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.options import Options
from nki.ranks import ALONE
from nki.sim.cores import Cores
from nki.sim.machine import Machine
from nki.sim.memory import LiveStorage, placed_memory, strided
from nki.sim.walk import Claim, check_trips
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop
from nki.target.model import Target

_MEETINGS = frozenset(("rendezvous", "ranks"))
"""Effects of what ends when others come, and not later."""

_CHANGE = 0.1
"""How likely a random policy changes the priority of a queue, at each step."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which of the possible things happens next.

    Attributes:
        kind: "program": in the order of the block; "late": one queue only when nothing else can go on; "early": one
            queue, and what it waits for, before everything else; "random": priorities of queues that change at times.
        queue: of "late" and "early".
        seed: of "random".
        in_flight: instructions read when they start, and what they write arrives when they complete, as late as
            possible ("random": at any time); else both happen at once. Instructions that write at a dynamic address or
            meet the other core always act at once.
    """

    kind: Literal["program", "late", "early", "random"] = "program"
    queue: str = ""
    seed: int = 0
    in_flight: bool = False


class Event(NamedTuple):
    """An instruction of a segment, by its position, starts or completes."""

    position: int
    starts: bool


def events(items: Sequence[Issued], syncs: Sequence[Sync], policy: Policy, salt: int = 0) -> Iterator[Event]:
    """A legal execution of a segment: every instruction starts and completes once.

    Args:
        salt: another random order for the same seed.

    Raises:
        ExecutionError: "schedule.stuck" if no queue can go on.
    """
    return iter(_Turns(items, syncs, policy, salt))


def run_adversely(
    programs: Sequence[Program],
    arrays: Sequence[np.ndarray],
    target: Target,
    policy: Policy,
    options: Options,
    machine: Callable[..., Machine] = Machine,
) -> list[np.ndarray]:
    """Execute the programs of one launch; returns the values of the outputs of core 0.

    On-chip tensors lie at the addresses of `Program.placement`, so that those which share bytes really do. Programs
    that are not scheduled run in their order.

    Args:
        arrays: one for each input, contiguous; kernels write straight into them.
        machine: what makes the machine of a core, called as `Machine` is.

    Raises:
        ExecutionError: "schedule.stuck", and what a plain run raises.
    """
    cores = Cores(len(programs))

    def run(core: int) -> dict[int, LiveStorage]:
        program = programs[core]
        memory = placed_memory(program, target, options.uninitialized)
        meet = None if len(programs) == 1 else lambda key, values, where: cores.meet(core, key, values, where)
        executor = machine(target, options, memory, lambda finding: None, ALONE, core, meet)
        inputs = [memory.adopt(buffer, array) for buffer, array in zip(program.inputs, arrays, strict=True)]
        with np.errstate(all="ignore"):
            held = _Runner(executor, policy, lambda buffer: cores.claim(core, memory, buffer)).run(program)
        return held | {storage.buffer.id: storage for storage in inputs}

    tasks: list[Callable[[], dict[int, LiveStorage]]] = [partial(run, core) for core in range(len(programs))]
    held = (cores.run(tasks) if len(tasks) > 1 else [tasks[0]()])[0]
    return [np.array(strided(held[view.buffer.id], view)) for view in programs[0].outputs]


class _Flight(NamedTuple):
    """What an instruction has computed and not yet written."""

    windows: list[np.ndarray]
    results: list[np.ndarray]


class _Runner:
    """Executes the blocks of one program."""

    def __init__(self, machine: Machine, policy: Policy, claim: Claim) -> None:
        self._machine = machine
        self._policy = policy
        self._claim = claim
        self._segments = 0

    def run(self, program: Program) -> dict[int, LiveStorage]:
        """Execute a program; returns the storages of its outermost block."""
        return self._block(program.body)

    def _block(self, block: Block) -> dict[int, LiveStorage]:
        live = {buffer.id: self._allocate(buffer) for buffer in block.buffers}
        items: list[Issued] = []
        syncs: list[Sync] = []
        for position, item in enumerate(block.items):
            sync = None if block.sync is None else block.sync[position]
            if isinstance(item, Issued) and sync is not None:
                items.append(item)
                syncs.append(sync)
                continue
            self._segment(items, syncs)
            items, syncs = [], []
            if isinstance(item, Issued):
                self._machine.run(item)
            else:
                self._loop(item)
        self._segment(items, syncs)
        return live

    def _allocate(self, buffer: Buffer) -> LiveStorage:
        shared = buffer.region is MemoryRegion.shared_hbm
        return self._claim(buffer) if shared else self._machine.memory.allocate(buffer)

    def _loop(self, loop: ForLoop | WhileLoop) -> None:
        machine = self._machine
        if isinstance(loop, ForLoop):
            for value in range(machine.read_register(loop.lower), machine.read_register(loop.upper), loop.step):
                machine.write_register(loop.index, value)
                self._block(loop.body)
            return
        trips = 0
        while machine.read_register(loop.condition) != 0:
            self._block(loop.body)
            trips += 1
            check_trips(trips, loop.location)

    def _segment(self, items: Sequence[Issued], syncs: Sequence[Sync]) -> None:
        self._segments += 1
        flights: dict[int, _Flight] = {}
        for position, starts in events(items, syncs, self._policy, self._segments):
            issued = items[position]
            flies = self._policy.in_flight and _can_fly(issued)
            if flies and starts:
                flights[position] = self._take_off(issued)
            elif flies:
                for window, result in zip(*flights.pop(position), strict=True):
                    window[...] = result
            elif starts != self._policy.in_flight:  # at once, as late as possible if others are in flight
                self._machine.run(issued)

    def _take_off(self, issued: Issued) -> _Flight:
        """Execute an instruction, and take its results away again."""
        memory = self._machine.memory
        windows = [strided(memory.storage(view), view) for view in _written(issued)]
        before = [window.copy() for window in windows]
        self._machine.run(issued)
        results = [window.copy() for window in windows]
        for window, old in zip(windows, before, strict=True):
            window[...] = old
        return _Flight(windows, results)


def _written(issued: Issued) -> list[View]:
    operands = issued.instruction.operands
    return [view for name, view in issued.views() if operands[name].writes]


def _can_fly(issued: Issued) -> bool:
    """Whether all that an instruction writes is tensors at known addresses."""
    written = _written(issued)
    meets = not _MEETINGS.isdisjoint(issued.instruction.effects(issued.arguments))
    return bool(written) and not meets and all(view.dynamic is None for view in written)


class _Turns:
    """The queues of a segment while they run."""

    def __init__(self, items: Sequence[Issued], syncs: Sequence[Sync], policy: Policy, salt: int) -> None:
        self._items = items
        self._syncs = syncs
        self._policy = policy
        self._random = Random(f"{policy.seed}/{salt}")
        self._queues: dict[str, deque[int]] = {}
        for position, sync in enumerate(syncs):
            self._queues.setdefault(sync.queue, deque()).append(position)
        self._given = dict.fromkeys(self._queues, 0)
        self._running: dict[str, int] = {}
        self._priority = {queue: self._random.random() for queue in sorted(self._queues)}
        early = policy.kind == "early" and policy.queue in self._queues
        self._first = {n: rank for rank, n in enumerate(self._needed(policy.queue))} if early else {}

    def __iter__(self) -> Iterator[Event]:
        """Let one thing happen after the other until all queues are empty."""
        at_once = not self._policy.in_flight
        while self._running or any(self._queues.values()):
            queue = self._choose()
            if queue in self._running:
                yield self._complete(queue)
                continue
            position = self._running[queue] = self._queues[queue].popleft()
            yield Event(position, True)
            if at_once:
                yield self._complete(queue)

    def _complete(self, queue: str) -> Event:
        position = self._running.pop(queue)
        self._given[queue] += self._syncs[position].signals
        return Event(position, False)

    def _choose(self) -> str:
        """The queue whose next start or completion comes first."""
        ready = [
            queue for queue, left in self._queues.items() if left and queue not in self._running and self._may(left[0])
        ]
        if not ready and not self._running:
            raise self._stuck()
        if self._policy.kind == "random":
            if self._random.random() < _CHANGE:
                self._priority[self._random.choice(sorted(self._queues))] = self._random.random()
            return min((*ready, *self._running), key=lambda queue: self._priority[queue])
        if ready:
            return min(ready, key=lambda queue: self._order(queue, self._queues[queue][0]))
        return max(
            self._running, key=lambda queue: (not self._is_late(queue), self._order(queue, self._running[queue]))
        )

    def _may(self, position: int) -> bool:
        return all(self._given.get(queue, 0) >= signals for queue, signals in self._syncs[position].waits)

    def _is_late(self, queue: str) -> bool:
        return self._policy.kind == "late" and queue == self._policy.queue

    def _order(self, queue: str, position: int) -> tuple[bool, int]:
        return self._is_late(queue), self._first.get(position, position + len(self._items))

    def _needed(self, queue: str) -> list[int]:
        """A queue's instructions, each after what it waits for."""
        signals: dict[str, list[int]] = {}
        previous: dict[int, int] = {}
        for name, positions in self._queues.items():
            signals[name] = [position for position in positions if self._syncs[position].signals]
            previous |= dict(zip(list(positions)[1:], positions, strict=False))
        found: dict[int, None] = {}
        entered: set[int] = set()
        todo = list(reversed(self._queues[queue]))
        while todo:
            position = todo[-1]
            if position in entered:
                found[todo.pop()] = None
                continue
            entered.add(position)
            waits = self._syncs[position].waits
            before = [signals[q][n - 1] for q, n in waits if 0 < n <= len(signals.get(q, ()))]
            before += [previous[position]] if position in previous else []
            todo += [other for other in before if other not in entered]
        return list(found)

    def _stuck(self) -> ExecutionError:
        """The error that names an instruction that waits for ever, and for whom."""
        first = min(left[0] for left in self._queues.values() if left)
        wait = next(w for w in self._syncs[first].waits if self._given.get(w.queue, 0) < w.signals)
        issued, left = self._items[first], self._queues.get(wait.queue)
        blocker = self._items[left[0]] if left else None
        behind = "has ended" if blocker is None else f"is at {blocker.instruction.label} at {blocker.location}"
        return ExecutionError(
            "schedule.stuck",
            f"{issued.instruction.label} at {issued.location} waits for {wait.signals} signals of queue {wait.queue}, "
            f"which gave {self._given.get(wait.queue, 0)} and {behind}",
            rule="every wait of a scheduled program comes true, whatever the speed of its queues",
            fix="wait for signals of instructions that come earlier",
            location=issued.location,
        )
