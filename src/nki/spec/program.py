"""The record that everything passes on, and a program as a tree of such records and loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.core.tensor import Buffer, View
from nki.spec.engine import engine

if TYPE_CHECKING:
    from nki.spec.instruction import Instruction


Placement = dict[int, tuple[int, int]]
"""``(partition, byte)`` of buffers by id."""


class Issued(NamedTuple):
    """One instruction with its arguments.

    `arguments` is the named tuple ``instruction.arguments`` in the order of the signature: tensors are `View`s,
    operators are `Operator`s, enumerations their members, registers `VirtualRegister`s, everything else plain Python
    values.
    """

    instruction: Instruction
    arguments: Any
    location: Location
    engine: engine

    def views(self) -> Iterator[tuple[str, View]]:
        """All tensor operands by name, members of a sequence one by one."""
        for position, name in self.instruction.tensor_positions:
            value = self.arguments[position]
            if type(value) is View:
                yield name, value
            elif type(value) is tuple:
                for item in value:
                    yield name, item

    def written(self) -> Iterator[View]:
        """All tensor operands that the instruction writes to."""
        for position in self.instruction.written_positions:
            value = self.arguments[position]
            if type(value) is View:
                yield value
            elif type(value) is tuple:
                yield from value


class Wait(NamedTuple):
    """That many `signals` of a queue must have come since the segment began (see `Sync`)."""

    queue: str
    signals: int


class Sync(NamedTuple):
    """Where and when a scheduled instruction runs.

    The items of a scheduled block between two loops are a segment. In it every queue starts its instructions in the
    order of the block, each after its waits, and they complete in that order. A loop is a barrier: all queues
    are idle before it, between its trips and after it, and the counts of signals start again from 0.

    Attributes:
        queue: "tensor", "vector", "scalar", "gpsimd" or "sync" for an engine, "dma0", "dma1", ... for a DMA queue.
        waits: signals of other queues that must have come before it starts.
        signals: whether its completion is a signal of its queue, because somebody waits for it.
    """

    queue: str
    waits: tuple[Wait, ...] = ()
    signals: bool = False


@dataclass(slots=True)
class Block:
    """Instructions and loops in program order, and the buffers that are allocated anew whenever it runs.

    Attributes:
        sync: once scheduled, one entry for each item: a `Sync` for an instruction, None for a loop; None before.
    """

    buffers: list[Buffer] = field(default_factory=list)
    items: list[Issued | ForLoop | WhileLoop] = field(default_factory=list)
    sync: list[Sync | None] | None = None

    def walk(self) -> Iterator[Issued]:
        """All instructions, each loop body once."""
        for item in self.items:
            if isinstance(item, Issued):
                yield item
            else:
                yield from item.body.walk()

    def all_buffers(self) -> Iterator[Buffer]:
        """The buffers of this block and of the loops in it."""
        yield from self.buffers
        for item in self.items:
            if not isinstance(item, Issued):
                yield from item.body.all_buffers()


@dataclass(slots=True)
class ForLoop:
    """``for index in range(lower, upper, step)`` on the device."""

    lower: int | VirtualRegister
    upper: int | VirtualRegister
    step: int
    index: VirtualRegister
    body: Block
    location: Location


@dataclass(slots=True)
class WhileLoop:
    """``while condition != 0`` on the device; the body leaves the next condition in the same register."""

    condition: VirtualRegister
    body: Block
    location: Location


def loops(block: Block) -> Iterator[ForLoop | WhileLoop]:
    """All loops in the order of the program, an outer one before those in it; their numbers count in this order."""
    for item in block.items:
        if not isinstance(item, Issued):
            yield item
            yield from loops(item.body)


def trips_of(loop: ForLoop | WhileLoop) -> int | None:
    """How often a loop runs; None if nobody knows before it does."""
    if isinstance(loop, WhileLoop) or not (isinstance(loop.lower, int) and isinstance(loop.upper, int)):
        return None
    return len(range(loop.lower, loop.upper, loop.step))


def depends_on_data(loop: ForLoop | WhileLoop) -> bool:
    """Whether nobody knows how often it runs before it does."""
    return trips_of(loop) is None


@dataclass(slots=True)
class Program:
    """What one core does.

    Attributes:
        name: of the kernel.
        target: name of the target.
        core, cores: position in the launch grid.
        inputs: input buffers in the order of the flattened tensor arguments.
        outputs: returned views in the order of the flattened result.
        body: the instructions.
        edges: ``(producer, consumer)`` positions in ``body.walk()`` that keep their order, whatever is reordered.
        fences: ``(first, after)`` ranges of positions in ``body.walk()`` that were issued under `nl.no_reorder`: their
            instructions keep their order among each other.
        passed: names of the compiler passes that it went through.
        placement: once allocated, ``(partition, byte)`` of every on-chip buffer without an explicit address, by id.
    """

    name: str
    target: str
    core: int
    cores: int
    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[View] = field(default_factory=list)
    body: Block = field(default_factory=Block)
    location: Location = Location()
    edges: list[tuple[int, int]] = field(default_factory=list)
    fences: list[tuple[int, int]] = field(default_factory=list)
    placement: Placement | None = None
    passed: tuple[str, ...] = ()
