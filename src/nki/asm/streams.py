"""What a compiled program is to the hardware: one stream of commands for each queue, and the tables they refer to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nki.core.locks import cached_property
from nki.core.source import Location
from nki.spec.queue import DMA, SEQUENCERS

INPUTS, BODY = -1, 0
"""Scopes of buffers that are no loop: the arguments of the kernel, and its body. Loops count from 1."""

Kind = Literal["none", "default", "bool", "int", "float", "text", "operator", "enum"]


@dataclass(frozen=True, slots=True)
class Immediate:
    """A value in the instruction itself.

    Attributes:
        kind: "none"; "default" what the declaration says; "operator" and "enum" are named.
        value: a number or a name; the bits of a float, so that NaNs and zeros stay apart; 0 if the kind says it all.
    """

    kind: Kind
    value: int | str = 0


NONE = Immediate("none")
DEFAULT = Immediate("default")


@dataclass(frozen=True, slots=True)
class Register:
    """A register, by its place in `Streams.registers`."""

    number: int


@dataclass(frozen=True, slots=True)
class Indirect:
    """An address that is known only while the program runs.

    Attributes:
        kind: "scalar_offset", "vector_offset" or "free_indirection" (`nki.core.tensor`).
        index: where the index comes from.
        scale: elements for each step of the index; for "free_indirection" the number of elements.
    """

    kind: str
    index: Access | Register
    scale: int


@dataclass(frozen=True, slots=True)
class Access:
    """Which elements of memory an operand is.

    Attributes:
        buffer: place in `Streams.buffers`, whose region and symbol are those of the access.
        partition: first partition of SBUF or PSUM; 0 in HBM.
        byte: first byte in each partition; in HBM counted from the start of the symbol.
        dtype: name of the element type.
        pattern: ``(stride, count)`` in elements, outermost first; on chip the first pair steps by partitions.
        indirect: what is added to the address, or None.
    """

    buffer: int
    partition: int
    byte: int
    dtype: str
    pattern: tuple[tuple[int, int], ...]
    indirect: Indirect | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Several values in one operand."""

    members: tuple[Operand, ...]


Operand = Immediate | Register | Access | Group


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until a semaphore has reached a count; see `semaphore_of`."""

    semaphore: int
    count: int

    @property
    def queue(self) -> str:
        """The queue whose semaphore it is."""
        return queue_of(self.semaphore)


@dataclass(frozen=True, slots=True)
class Command:
    """One instruction in the stream of its queue.

    Attributes:
        position: in program order, where loops count too; the streams of a core together have each position once.
        opcode: name of the declared instruction.
        engine: that runs it.
        operands: in the order of the signature.
        waits: what must have come before it starts.
        signals: whether its completion adds 1 to the semaphore of its queue.
        location: place in `Streams.locations`.
    """

    position: int
    opcode: str
    engine: str
    operands: tuple[Operand, ...]
    waits: tuple[Await, ...]
    signals: bool
    location: int


@dataclass(frozen=True, slots=True)
class Begin:
    """A loop begins in a queue that has instructions in it; it is the same record in all of these queues.

    Before it, between its trips and after it all queues meet, and all semaphores start from 0 again.

    Attributes:
        loop: number of the loop, from 1.
        position: see `Command`.
        register: the index of a counted loop, or the condition of a while loop.
        bounds: lower and upper bound of a counted loop, None for a while loop.
        step: of a counted loop, else 0.
        scheduled: whether the body has a schedule, which a body without instructions does not show.
        location: place in `Streams.locations`.
    """

    loop: int
    position: int
    register: Register
    bounds: tuple[int | Register, int | Register] | None
    step: int
    scheduled: bool
    location: int


@dataclass(frozen=True, slots=True)
class End:
    """The body of a loop ends."""

    loop: int


@dataclass(frozen=True, slots=True)
class Pass:
    """A queue without instructions in a loop meets the others before the loop, and waits until it has ended."""

    loop: int


Entry = Command | Begin | End | Pass


@dataclass(frozen=True, slots=True)
class Stream:
    """What one queue does, in order."""

    queue: str
    entries: tuple[Entry, ...]

    def commands(self) -> Iterator[Command]:
        """The instructions."""
        return (entry for entry in self.entries if isinstance(entry, Command))


@dataclass(frozen=True, slots=True)
class BufferEntry:
    """One allocation.

    Attributes:
        id, name, shape, role, data: as in `nki.core.tensor.Buffer`.
        region, dtype: names.
        scope: `INPUTS`, `BODY`, or the number of the loop whose every trip allocates it anew.
        address: ``(partition, byte)`` on chip, None in HBM.
        explicit: whether the kernel asked for the address.
        location: place in `Streams.locations`.
    """

    id: int
    name: str
    region: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    scope: int
    address: tuple[int, int] | None
    explicit: bool
    location: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class RegisterEntry:
    """A register: its number in the program, and whether it is the index of a loop, which is not written."""

    id: int
    frozen: bool


@dataclass(frozen=True)
class Streams:
    """All that one core does.

    Attributes:
        name, target, core, cores, edges, fences, passed: as in `nki.spec.program.Program`.
        location: of the kernel, place in `locations`.
        scheduled: whether the kernel's own block has a schedule, see `Begin`.
        locations: each once, in the order of their first use.
        registers: in the order of their first use.
        buffers: the inputs, then those of the body, then those of each loop.
        outputs: the accesses that are returned.
        streams: of the queues that have something to do, in the order of `semaphore_of`.
    """

    name: str
    target: str
    core: int
    cores: int
    location: int
    scheduled: bool
    locations: tuple[Location, ...]
    registers: tuple[RegisterEntry, ...]
    buffers: tuple[BufferEntry, ...]
    outputs: tuple[Access, ...]
    edges: tuple[tuple[int, int], ...]
    fences: tuple[tuple[int, int], ...]
    passed: tuple[str, ...]
    streams: tuple[Stream, ...]

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """What assembly calls the buffers: ``input0``, ``output0``, ``internal0``, ``const0``, ``sbuf0``, ``psum0``."""
        returned = {access.buffer for access in self.outputs}
        counts: dict[str, int] = {}
        found = []
        for number, buffer in enumerate(self.buffers):
            family = _family(buffer, number in returned)
            counts[family] = counts.get(family, -1) + 1
            found.append(f"{family}{counts[family]}")
        return tuple(found)

    def of(self, queue: str) -> Stream | None:
        """The stream of a queue, None if it has nothing to do."""
        return next((stream for stream in self.streams if stream.queue == queue), None)


def _family(buffer: BufferEntry, returned: bool) -> str:
    if buffer.region in ("sbuf", "psum"):
        return buffer.region
    if buffer.scope == INPUTS:
        return "input"
    if buffer.data is not None:
        return "const"
    return "output" if returned else "internal"


def semaphore_of(queue: str) -> int | None:
    """Each queue has one semaphore: 0 to 4 for tensor, vector, scalar, gpsimd, sync, and 5 + n for DMA queue n.

    None if there is no queue of that name.
    """
    if queue in SEQUENCERS:
        return SEQUENCERS.index(queue)
    digits = queue.removeprefix(DMA)
    if queue.startswith(DMA) and digits.isascii() and digits.isdecimal() and str(int(digits[:9])) == digits:
        return len(SEQUENCERS) + int(digits)
    return None


def queue_of(semaphore: int) -> str:
    """The inverse of `semaphore_of`."""
    engines = len(SEQUENCERS)
    return SEQUENCERS[semaphore] if semaphore < engines else f"{DMA}{semaphore - engines}"
