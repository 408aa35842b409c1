"""A compiled program to the streams of its queues."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from nki.asm.addresses import start_of
from nki.asm.streams import (
    BODY,
    INPUTS,
    Access,
    Await,
    Begin,
    BufferEntry,
    Command,
    End,
    Entry,
    Group,
    Indirect,
    Operand,
    Pass,
    Register,
    RegisterEntry,
    Stream,
    Streams,
    queue_of,
    semaphore_of,
)
from nki.asm.values import immediate
from nki.core.errors import IRError
from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.core.tensor import Buffer, FreeIndirection, ScalarOffset, VectorOffset, View
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop

_INDIRECT: dict[type, str] = {
    ScalarOffset: "scalar_offset",
    VectorOffset: "vector_offset",
    FreeIndirection: "free_indirection",
}
_IDLE = "sync"
"""The queue that runs a loop without instructions."""


def lower(program: Program) -> Streams:
    """The streams of a program that has a schedule and, for all tensors on chip, addresses.

    Raises:
        IRError: "asm.unscheduled" or "asm.unplaced" if it lacks one of them, "asm.scope" for a tensor that is used
            outside the loop that allocates it, "asm.queue" for a queue that does not exist, "asm.value" for an argument
            that has no form in assembly.
    """
    return _Lowering(program).run()


class _Lowering:
    """Numbers what it meets, and hands each queue its part."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._locations: dict[Location, int] = {}
        self._seen: dict[int, int] = {}
        self._registers: dict[int, int] = {}
        self._register_entries: list[RegisterEntry] = []
        self._buffers: dict[int, int] = {}
        self._buffer_entries: list[BufferEntry] = []
        self._accesses: dict[View, Access] = {}
        self._immediates: dict[tuple[str, str, type, Any], Operand] = {}
        self._awaits: dict[tuple[str, int], Await] = {}
        self._entries: dict[int, list[Entry]] = {}
        self._position = 0
        self._loops = 0

    def run(self) -> Streams:
        program = self._program
        location = self._location(program.location)
        for semaphore in sorted(_queues(program.body)):
            self._entries[semaphore] = []
        self._declare(program.inputs, INPUTS)
        self._block(program.body, BODY)
        outputs = tuple(self._access(view) for view in program.outputs)
        return Streams(
            name=program.name,
            target=program.target,
            core=program.core,
            cores=program.cores,
            location=location,
            scheduled=program.body.sync is not None,
            locations=tuple(self._locations),
            registers=tuple(self._register_entries),
            buffers=tuple(self._buffer_entries),
            outputs=outputs,
            edges=tuple(program.edges),
            fences=tuple(program.fences),
            passed=program.passed,
            streams=tuple(Stream(queue_of(number), tuple(entries)) for number, entries in self._entries.items()),
        )

    def _block(self, block: Block, scope: int) -> None:
        self._declare(block.buffers, scope)
        syncs = block.sync or [None] * len(block.items)
        for item, sync in zip(block.items, syncs, strict=True):
            if not isinstance(item, Issued):
                self._loop(item)
            elif sync is None:
                raise _unfinished("asm.unscheduled", f"{item.instruction.label} has no queue", item.location)
            else:
                self._command(item, sync)
        for buffer in block.buffers if scope != BODY else ():
            del self._buffers[buffer.id]

    def _declare(self, buffers: list[Buffer], scope: int) -> None:
        for buffer in buffers:
            address = self._address(buffer)
            self._buffers[buffer.id] = len(self._buffer_entries)
            self._buffer_entries.append(
                BufferEntry(
                    id=buffer.id,
                    name=buffer.name,
                    region=buffer.region.value,
                    shape=buffer.shape,
                    dtype=buffer.dtype.name,
                    role=buffer.role,
                    scope=scope,
                    address=address,
                    explicit=buffer.address is not None,
                    location=self._location(buffer.location),
                    data=buffer.data,
                )
            )

    def _address(self, buffer: Buffer) -> tuple[int, int] | None:
        placement = self._program.placement
        placed = None if placement is None else placement.get(buffer.id)
        if buffer.on_chip and (placement is None or (buffer.address is None and placed is None)):
            raise _unfinished("asm.unplaced", f"{buffer!r} has no address", buffer.location)
        return placed if buffer.address is None else buffer.address

    def _command(self, issued: Issued, sync: Sync) -> None:
        instruction, arguments, location, engine = issued
        operands = tuple(
            self._operand(value, issued, name) for name, value in zip(instruction.operands, arguments, strict=True)
        )
        waits = tuple(self._await(wait.queue, wait.signals, location) for wait in sync.waits)
        self._entries[_semaphore(sync.queue, location)].append(
            Command(
                self._next(), instruction.name, engine.name, operands, waits, sync.signals, self._location(location)
            )
        )

    def _operand(self, value: Any, issued: Issued, name: str) -> Operand:
        if type(value) is View:
            return self._access(value, issued.location)
        if isinstance(value, VirtualRegister):
            return self._register(value)
        if type(value) is tuple and value and type(value[0]) is View:
            return Group(tuple(self._access(view, issued.location) for view in value))
        # 0.0 and -0.0 are equal keys, as are 1 and True in a tuple; a default may be a list
        if type(value) in (float, tuple) or not isinstance(value, Hashable):
            return self._immediate(value, issued, name)
        key = (issued.instruction.name, name, type(value), value)
        known = self._immediates.get(key)
        if known is None:
            known = self._immediates[key] = self._immediate(value, issued, name)
        return known

    def _immediate(self, value: Any, issued: Issued, name: str) -> Operand:
        try:
            return immediate(value, issued.instruction, name)
        except IRError as error:
            error.location = issued.location
            raise

    def _access(self, view: View, where: Location | None = None) -> Access:
        known = self._accesses.get(view)
        if known is not None and view.buffer.id in self._buffers:
            return known
        buffer, dtype, shape, strides, _, dynamic = view
        number = self._buffers.get(buffer.id)
        if number is None:
            raise IRError(
                "asm.scope",
                f"tensor {buffer.name} is used outside the device loop that allocates it",
                rule="a tensor that is allocated in a device loop is a new one in every trip, and ends with it",
                fix="allocate it before the loop",
                location=where or buffer.location,
            )
        partition, byte = start_of(view, self._buffer_entries[number].address)
        indirect = None
        if dynamic is not None:
            indices, scale = dynamic
            index = self._register(indices) if isinstance(indices, VirtualRegister) else self._access(indices, where)
            indirect = Indirect(_INDIRECT[type(dynamic)], index, scale)
        pattern = tuple(zip(strides, shape, strict=True))
        made = self._accesses[view] = Access(number, partition, byte, dtype.name, pattern, indirect)
        return made

    def _loop(self, loop: ForLoop | WhileLoop) -> None:
        self._loops += 1
        number, position = self._loops, self._next()
        begin = Begin(
            loop=number,
            position=position,
            register=self._register(loop.index if isinstance(loop, ForLoop) else loop.condition),
            bounds=(self._bound(loop.lower), self._bound(loop.upper)) if isinstance(loop, ForLoop) else None,
            step=loop.step if isinstance(loop, ForLoop) else 0,
            scheduled=loop.body.sync is not None,
            location=self._location(loop.location),
        )
        inside = _queues(loop.body) or {_semaphore(_IDLE, loop.location)}
        for semaphore, entries in self._entries.items():
            entries.append(begin if semaphore in inside else Pass(number))
        self._block(loop.body, number)
        for semaphore in inside:
            self._entries[semaphore].append(End(number))

    def _bound(self, bound: int | VirtualRegister) -> int | Register:
        return self._register(bound) if isinstance(bound, VirtualRegister) else bound

    def _register(self, register: VirtualRegister) -> Register:
        number = self._registers.setdefault(register.id, len(self._registers))
        if number == len(self._register_entries):
            self._register_entries.append(RegisterEntry(register.id, register.frozen))
        return Register(number)

    def _await(self, queue: str, count: int, where: Location) -> Await:
        known = self._awaits.get((queue, count))
        if known is None:
            known = self._awaits[queue, count] = Await(_semaphore(queue, where), count)
        return known

    def _location(self, location: Location) -> int:
        known = self._seen.get(id(location))
        if known is None:
            known = self._seen[id(location)] = self._locations.setdefault(location, len(self._locations))
        return known

    def _next(self) -> int:
        self._position += 1
        return self._position - 1


def _queues(block: Block) -> set[int]:
    """Semaphores of the queues that have something to do in a block; loops without instructions have one too."""
    found: set[int] = set()
    syncs = block.sync or [None] * len(block.items)
    for item, sync in zip(block.items, syncs, strict=False):
        if not isinstance(item, Issued):
            found |= _queues(item.body) or {_semaphore(_IDLE, item.location)}
        elif sync is not None:
            found.add(_semaphore(sync.queue, item.location))
    return found


def _semaphore(queue: str, where: Location) -> int:
    found = semaphore_of(queue)
    if found is None:
        raise IRError(
            "asm.queue",
            f"there is no queue {queue!r}",
            rule="a queue is that of an engine, or dma0, dma1, ...",
            fix="schedule the program again",
            location=where,
        )
    return found


def _unfinished(code: str, message: str, where: Location) -> IRError:
    return IRError(
        code,
        message,
        rule="streams are made of compiled programs: with a schedule, and an address for every tensor on chip",
        fix="run all passes of the compiler first",
        location=where,
    )
