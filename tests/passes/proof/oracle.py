"""Runs a small synchronised program in every legal order and says whether all of them do the same.

Memory holds, for each byte, who wrote it, in which order; an instruction reads at some moment between its start and its
completion and writes at a later one. Everything is enumerated and nothing inferred: places come from lists of indices,
and what an instruction reads and writes is written down here by name. The program order is the reference. As soon as
a read sees other writers, or a byte is written by others before, than in the reference, the program is racy.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki.core.register import VirtualRegister
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View
from nki.spec.program import Issued, Program, Sync

Place = Hashable
"""A byte, a register, or something else that is read and written."""

ROLES: dict[str, tuple[str, str]] = {
    "tensor_copy": ("src", "dst"),
    "tensor_tensor": ("data1 data2", "dst"),
    "memset": ("", "dst"),
    "dma_copy": ("src", "dst"),
    "tensor_copy_predicated": ("src predicate dst", "dst"),
    "activation_reduce": ("data *", "dst reduce_res *"),
    "nc_matmul": ("stationary moving", "dst"),
    "register_move": ("src", "dst"),
    "register_load": ("src", "dst"),
    "register_store": ("src", "dst"),
    "rand2": ("*", "dst *"),
    "device_print": ("tensor *", "*"),
    "core_barrier": ("data", "data"),
    "barrier": ("", ""),
    "everything": ("", ""),
}
"""Operands that are read, and that are written; * is state of the engine, or of the output."""

MEETINGS = ("core_barrier", "barrier")
GRANULE = 4


@dataclass(frozen=True)
class Does:
    """What one instruction does, place by place."""

    reads: frozenset[Place]
    writes: frozenset[Place]
    meets: bool = False


@dataclass
class Task:
    """An instruction in a queue.

    Attributes:
        queue: by name and core.
        after: tasks that must have completed before it starts: the one before it in its queue, and those it waits for.
        edges: tasks that the schedule of the kernel puts before it; they do not hold it back.
        partner: the task on the other core that it meets.
        impossible: waits for something that never comes.
    """

    does: Does
    queue: tuple[int, str]
    after: list[int] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    partner: int | None = None
    impossible: bool = False


def does(issued: Issued, program: Program, shared: dict[int, str] | None = None) -> Does:
    """The places that an instruction reads and writes."""
    name, core = issued.instruction.name, program.core
    reads: set[Place] = set()
    writes: set[Place] = set()
    for operands, places in zip(ROLES[name], (reads, writes), strict=True):
        for operand in operands.split():
            if operand == "*":
                places.add((core, "output" if name == "device_print" else issued.engine))
                continue
            value = getattr(issued.arguments, operand)
            if isinstance(value, VirtualRegister):
                places.add((core, "register", value.id))
            elif isinstance(value, View):
                places |= _bytes(value, program, shared or {})
                index = value.dynamic.indices if value.dynamic else None
                if isinstance(index, VirtualRegister):
                    reads.add((core, "register", index.id))
                elif index is not None:
                    reads |= _bytes(index, program, shared or {})
    if name == "nc_matmul" and issued.arguments.accumulate is not False:
        writes |= {place for written in writes for place in _granule(written)}
        reads |= writes
    meets = name in MEETINGS and issued.arguments.cores == (0, 1)
    if meets:
        writes.add((core, "order of device memory"))
    elif any(isinstance(p, tuple) and p[0] == "hbm" for p in reads | writes):
        reads.add((core, "order of device memory"))
    (writes if name == "everything" else reads).add((core, "fence"))
    return Does(frozenset(reads), frozenset(writes), meets)


def _granule(place: Any) -> list[Place]:
    memory, partition, byte = place[:-2], place[-2], place[-1]
    return [(*memory, partition, byte - byte % GRANULE + k) for k in range(GRANULE)]


def _bytes(view: View, program: Program, shared: dict[int, str]) -> set[Place]:
    """Every byte that a view can touch, by its place in the real memory."""
    size, row = view.dtype.itemsize, view.buffer.row_bytes // view.dtype.itemsize
    total = view.buffer.nbytes // size
    grid = np.zeros(view.shape, int) + view.offset
    for axis, (count, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        first = isinstance(view.dynamic, VectorOffset) and axis == 0
        steps = np.arange(count) * (0 if first else stride)
        grid = grid + steps.reshape([-1 if a == axis else 1 for a in range(len(view.shape))])
    elements: set[int] = set()
    match view.dynamic:
        case None:
            elements = set(grid.reshape(-1).tolist())
        case FreeIndirection():
            for partition in range(view.shape[0]):
                start = view.offset + partition * row
                elements |= set(range(start, (start // row + 1) * row))
        case ScalarOffset(_, scale):
            for index in range(-total, total + 1):
                moved = grid + index * scale
                free = view.offset % row + (grid - view.offset) % row + index * scale
                in_row = view.buffer.on_chip and scale % row
                if moved.min() >= 0 and moved.max() < total and (not in_row or (free.min() >= 0 and free.max() < row)):
                    elements |= set(moved.reshape(-1).tolist())
        case VectorOffset(_, scale):
            for index in range(total + 1):
                row_of = set((grid[0] + index * scale).reshape(-1).tolist())
                elements |= row_of if max(row_of) < total else set()  # a row that is not inside is an error, or skipped
    return {place for element in elements for place in _places(view, element, size, row, program, shared)}


def _places(view: View, element: int, size: int, row: int, program: Program, shared: dict[int, str]) -> list[Place]:
    buffer = view.buffer
    if not buffer.on_chip:
        name = shared.get(buffer.id)
        where = ("hbm", name) if name else ("hbm", program.core, buffer.id)
        return [(*where, 0, element * size + k) for k in range(size)]
    partition, free = divmod(element, row)
    address = buffer.address or (program.placement or {}).get(buffer.id)
    if address is None:
        return [(program.core, buffer.id, partition, free * size + k) for k in range(size)]
    return [
        (program.core, str(buffer.region), address[0] + partition, address[1] + free * size + k) for k in range(size)
    ]


def conflict(a: Does, b: Does) -> bool:
    """Whether two instructions must keep their order."""
    return bool(a.writes & (b.reads | b.writes) or b.writes & a.reads)


def tasks(
    items: Sequence[Does], syncs: Sequence[Sync], edges: Sequence[tuple[int, int]] = (), core: int = 0, base: int = 0
) -> list[Task]:
    """The tasks of one segment; `base` is the number of tasks before it."""
    made: list[Task] = []
    queues: dict[str, list[int]] = {}
    signals: dict[str, list[int]] = {}
    for position, sync in enumerate(syncs):
        queues.setdefault(sync.queue, []).append(position)
        if sync.signals:
            signals.setdefault(sync.queue, []).append(position)
    for position, (item, sync) in enumerate(zip(items, syncs, strict=True)):
        before = [p for p in queues[sync.queue] if p < position][-1:]
        impossible = any(count > len(signals.get(queue, ())) for queue, count in sync.waits)
        waits = [] if impossible else [signals[queue][count - 1] for queue, count in sync.waits if count]
        after = [base + p for p in before + waits]
        wanted = [base + p for p, c in edges if c == position]
        made.append(Task(item, (core, sync.queue), after, wanted, None, impossible))
    return made


WAITING, RUNNING, READ, WRITTEN, DONE = range(5)


def verdict(all_tasks: Sequence[Task], reference: Sequence[int]) -> str:
    """ "ordered" if every legal execution does what the reference order does, "racy", or "stuck"."""
    start = (WAITING,) * len(all_tasks)
    if _stuck(all_tasks, start):
        return "stuck"
    wanted_read, wanted_write = _reference(all_tasks, reference)
    seen = {start}
    todo = [start]
    while todo:
        phases = todo.pop()
        history = _histories(all_tasks, phases)
        for number, task in enumerate(all_tasks):
            step = _step(all_tasks, phases, number)
            if step is None:
                continue
            if phases[number] == WAITING and any(phases[edge] != DONE for edge in task.edges):
                return "racy"
            for next_phase, places, wanted in (
                (READ, task.does.reads, wanted_read[number]),
                (WRITTEN, task.does.writes, wanted_write[number]),
            ):
                if step[number] == next_phase and any(history.get(p, frozenset()) != wanted[p] for p in places):
                    return "racy"
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return "ordered"


def _stuck(all_tasks: Sequence[Task], phases: tuple[int, ...]) -> bool:
    """Whether the tasks cannot all complete; in which order they run makes no difference to that."""
    while True:
        steps = (_step(all_tasks, phases, number) for number in range(len(all_tasks)))
        step = next((step for step in steps if step is not None), None)
        if step is None:
            return any(phase != DONE for phase in phases)
        phases = step


def _step(all_tasks: Sequence[Task], phases: tuple[int, ...], number: int) -> tuple[int, ...] | None:
    """The phases after the next event of one task; None if it cannot go on."""
    task, phase = all_tasks[number], phases[number]
    if phase == DONE:
        return None
    if phase == WAITING and (task.impossible or any(phases[other] != DONE for other in task.after)):
        return None
    if phase == RUNNING and task.partner is not None and phases[task.partner] == WAITING:
        return None
    return (*phases[:number], phase + 1, *phases[number + 1 :])


def _reference(
    all_tasks: Sequence[Task], order: Sequence[int]
) -> tuple[list[dict[Place, frozenset[int]]], list[dict[Place, frozenset[int]]]]:
    """Who wrote each place before each task read it, and before it wrote it, in the reference order.

    As sets: the order within is that of the reference, or the run would have been racy when it came to be.
    """
    history: dict[Place, frozenset[int]] = {}
    reads: list[dict[Place, frozenset[int]]] = [{} for _ in all_tasks]
    writes: list[dict[Place, frozenset[int]]] = [{} for _ in all_tasks]
    for number in order:
        item = all_tasks[number].does
        reads[number] = {place: history.get(place, frozenset()) for place in item.reads}
        writes[number] = {place: history.get(place, frozenset()) for place in item.writes}
        for place in item.writes:
            history[place] = history.get(place, frozenset()) | {number}
    return reads, writes


def _histories(all_tasks: Sequence[Task], phases: tuple[int, ...]) -> dict[Place, frozenset[int]]:
    """Who has written each place so far."""
    history: dict[Place, set[int]] = {}
    for number, (task, phase) in enumerate(zip(all_tasks, phases, strict=True)):
        if phase >= WRITTEN:
            for place in task.does.writes:
                history.setdefault(place, set()).add(number)
    return {place: frozenset(writers) for place, writers in history.items()}
