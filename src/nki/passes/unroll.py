"""Unrolling device loops, so that the scheduler overlaps their trips: software pipelining with a ring of buffers.

A trip that is unrolled has tensors of its own, which the allocator puts at other addresses: loads of the next trips run
while this one computes. Trips of a loop that stays one are separated by a barrier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from nki.core.errors import TensorError
from nki.core.pattern import check_inside
from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, ScalarOffset, View
from nki.passes.analysis.liveness import register_places
from nki.passes.analysis.pressure import memory_peak
from nki.passes.context import Context, rewriting
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

MOST_INSTRUCTIONS = 4096
"""Instructions of one unrolled body, at most."""


@dataclass(frozen=True, slots=True)
class _Trip:
    """One copy of a body.

    Attributes:
        number: of the copy; 0 for code that is not copied.
        value: of the index, or None if the index register holds it.
        shift: what is added to the index register.
    """

    number: int
    value: int | None = None
    shift: int = 0


class _Unsuitable(Exception):
    """The loop stays as it is."""


def run(program: Program, context: Context) -> Program:
    """Unroll innermost loops with constant bounds, if ``CompileConfig.prefetch_auto`` is set.

    The factor is `Options.prefetch_ring`, the number of buffers that loads go round. A loop of no more trips than that
    disappears; otherwise what is left over follows it. A loop stays as it is if its index is needed as a number (only
    addresses can take a constant) or behind the loop, if a copy would leave its tensor, which is to be seen while
    running, or if the tensors of all copies together would not fit.
    """
    ring = context.options.prefetch_ring
    if not context.config.prefetch_auto or ring < 2 or not any(True for _ in _loops(program.body)):
        return program
    return _Unroller(program, context, ring).run()


class _Unroller:
    """Rebuilds a program, and remembers where its instructions went."""

    def __init__(self, program: Program, context: Context, ring: int) -> None:
        self._program = program
        self._target = context.target
        self._ring = ring
        self._next_buffer = 1 + max((b.id for b in (*program.inputs, *program.body.all_buffers())), default=0)
        self._uses = _counted(program.body)
        self._next_register = 1 + max((*self._uses, *_indices(program.body)), default=0)
        self._origin: list[tuple[int, int]] = []
        self._at = 0

    def run(self) -> Program:
        """The new program, with new positions of its edges and ordered regions."""
        body = self._block(self._program.body)
        place: dict[tuple[int, int], int] = {origin: new for new, origin in enumerate(self._origin)}
        copies: dict[int, list[int]] = {}
        for old, copy in self._origin:
            copies.setdefault(old, []).append(copy)
        edges = [(place[p, n], place[c, n]) for p, c in self._program.edges for n in copies[p] if (c, n) in place]
        fences = [
            (place[first, n], place[after - 1, n] + 1)
            for first, after in self._program.fences
            for n in copies[first]
            if (after - 1, n) in place
        ]
        return replace(self._program, body=body, edges=sorted(edges), fences=sorted(fences))

    def _block(self, block: Block) -> Block:
        made = Block(list(block.buffers))
        for item in block.items:
            if isinstance(item, Issued):
                self._keep(item, made)
            elif isinstance(item, WhileLoop) or any(True for _ in _loops(item.body)):
                made.items.append(replace(item, body=self._block(item.body)))
            else:
                self._loop(item, made)
        return made

    def _keep(self, item: Issued, made: Block) -> None:
        self._origin.append((self._at, 0))
        self._at += 1
        made.items.append(item)

    def _loop(self, loop: ForLoop, made: Block) -> None:
        """An innermost loop: unrolled, or as it was."""
        size, marked = len(loop.body.items), len(self._origin)
        try:
            factor = self._factor(loop)
            items, buffers = self._unrolled(loop, factor)
        except _Unsuitable:
            # Copies may have been noted before one of them did not work out.
            del self._origin[marked:]
            made.items.append(loop)
            self._origin += [(self._at + position, 0) for position in range(size)]
        else:
            made.items += items
            made.buffers += buffers
        self._at += size

    def _factor(self, loop: ForLoop) -> int:
        if isinstance(loop.lower, VirtualRegister) or isinstance(loop.upper, VirtualRegister):
            raise _Unsuitable
        if _counted(loop.body)[loop.index.id] < self._uses[loop.index.id]:
            raise _Unsuitable  # its last value is used behind the loop
        trips = len(range(loop.lower, loop.upper, loop.step))
        factor = min(self._ring, trips, MOST_INSTRUCTIONS // max(1, len(loop.body.items)))
        room = self._room(loop.body)
        if min(factor, room) < max(1, min(2, trips)) or not all(
            _only_addresses(item, loop.index) for item in loop.body.walk()
        ):
            raise _Unsuitable
        return min(factor, room)

    def _room(self, body: Block) -> int:
        """How many copies of the tensors of a body fit beside everything else."""
        peak = memory_peak(self._program)
        rooms = [self._ring]
        for live, region, limit in (
            (peak.sbuf, "sbuf", self._target.sbuf.usable_bytes_per_partition),
            (peak.psum, "psum", self._target.psum.bytes_per_partition),
        ):
            own = sum(_rounded(b, self._target.psum.bank_bytes) for b in body.buffers if b.region.value == region)
            if own:
                # The peak has one copy, or is elsewhere: then there is more room here than this, never less.
                rooms.append(1 + max(0, limit - live) // own)
        if any(b.address is not None for b in body.buffers if b.on_chip):
            raise _Unsuitable
        return min(rooms)

    def _unrolled(self, loop: ForLoop, factor: int) -> tuple[list[Any], list[Buffer]]:
        assert isinstance(loop.lower, int), "asked before"
        assert isinstance(loop.upper, int), "asked before"
        trips = range(loop.lower, loop.upper, loop.step)
        rounds = len(trips) // factor
        private = self._private(loop)
        items: list[Any] = []
        buffers: list[Buffer] = []
        if rounds > 1:
            body = Block()
            for number in range(factor):
                self._copy(loop, _Trip(number, None, number * loop.step), private, body)
            # The index register steps over a whole round; each copy adds the distance of its trip to its addresses.
            after = loop.lower + rounds * factor * loop.step
            items.append(replace(loop, upper=after, step=loop.step * factor, body=body))
            rest = range(rounds * factor, len(trips))
        else:
            rest = range(len(trips))
        tail = Block()
        for offset, trip in enumerate(rest):
            self._copy(loop, _Trip(factor + offset, trips[trip]), private, tail)
        return items + tail.items, buffers + tail.buffers

    def _copy(self, loop: ForLoop, trip: _Trip, private: list[int], made: Block) -> None:
        renamed: dict[int, Buffer] = {}
        for buffer in loop.body.buffers:
            renamed[buffer.id] = replace(buffer, id=self._next_buffer)
            self._next_buffer += 1
            made.buffers.append(renamed[buffer.id])
        registers: dict[int, VirtualRegister] = {}
        for number in private:
            registers[number] = VirtualRegister(self._next_register)
            self._next_register += 1
        rename = _Rename(loop.index, trip, renamed, registers)
        for position, item in enumerate(loop.body.items):
            assert isinstance(item, Issued), "innermost loops hold instructions only"
            self._origin.append((self._at + position, trip.number))
            made.items.append(item._replace(arguments=type(item.arguments)(*map(rename.value, item.arguments))))

    def _private(self, loop: ForLoop) -> list[int]:
        """Registers that every trip writes before it reads them, and nobody else uses."""
        inside = list(loop.body.walk())
        here = _counted(loop.body)
        first: dict[int, bool] = {}
        for issued in inside:
            # Reads first, as an instruction does them: a register that it counts up is handed on, and not private.
            for register, writes in sorted(_uses(issued), key=lambda use: use[1]):
                first.setdefault(register.id, writes)
        return sorted(r for r, writes in first.items() if writes and here[r] == self._uses[r] and r != loop.index.id)


@dataclass(frozen=True, slots=True)
class _Rename:
    """What the values of one copy become."""

    index: VirtualRegister
    trip: _Trip
    buffers: dict[int, Buffer]
    registers: dict[int, VirtualRegister]

    def value(self, value: Any) -> Any:
        """An argument of an instruction in the copy."""
        if type(value) is View:
            return self._view(value)
        if isinstance(value, VirtualRegister):
            return self.registers.get(value.id, value)
        if type(value) is tuple and any(type(item) is View for item in value):
            return tuple(self._view(item) for item in value)
        return value

    def _view(self, view: View) -> View:
        buffer = self.buffers.get(view.buffer.id, view.buffer)
        dynamic = view.dynamic
        if dynamic is None:
            return view if buffer is view.buffer else view._replace(buffer=buffer)
        indices = dynamic.indices
        if isinstance(dynamic, ScalarOffset) and indices is self.index:
            return self._placed(view._replace(buffer=buffer), dynamic.scale)
        return view._replace(buffer=buffer, dynamic=dynamic._replace(indices=self.value(indices)))

    def _placed(self, view: View, scale: int) -> View:
        if self.trip.value is None:
            return view._replace(offset=view.offset + self.trip.shift * scale)
        static = view._replace(offset=view.offset + self.trip.value * scale, dynamic=None)
        try:
            check_inside(static)
        except TensorError:
            raise _Unsuitable from None
        return static


def _only_addresses(issued: Issued, index: VirtualRegister) -> bool:
    """Whether the index of a loop is used for addresses only."""
    return all(value is not index for value in issued.arguments)


def _rounded(buffer: Buffer, bank: int) -> int:
    return buffer.row_bytes if buffer.region.value == "sbuf" else -(-buffer.row_bytes // bank) * bank


def _loops(block: Block) -> Iterator[ForLoop | WhileLoop]:
    return (item for item in block.items if not isinstance(item, Issued))


def _uses(issued: Issued) -> Iterator[tuple[VirtualRegister, bool]]:
    """Registers of an instruction, and whether they are written."""
    operands = issued.instruction.operands
    for position in register_places(issued.instruction):
        value = issued.arguments[position]
        if isinstance(value, VirtualRegister):
            operand = list(operands.values())[position]
            if operand.reads:
                yield value, False
            if operand.writes:
                yield value, True
    for _, view in issued.views():
        if view.dynamic is not None and isinstance(view.dynamic.indices, VirtualRegister):
            yield view.dynamic.indices, False


def _registers(issued: Issued) -> Iterator[VirtualRegister]:
    return (register for register, _ in _uses(issued))


def _indices(block: Block) -> Iterator[int]:
    """Registers that count trips, whether anybody asks for them or not."""
    for loop in _loops(block):
        if isinstance(loop, ForLoop):
            yield loop.index.id
        yield from _indices(loop.body)


def _counted(block: Block) -> Counter[int]:
    """How often registers are named in a block, by its instructions and as bounds and conditions of loops in it."""
    count = Counter(register.id for issued in block.walk() for register in _registers(issued))
    for loop in _loops(block):
        count += _bounds(loop)
    return count


def _bounds(loop: ForLoop | WhileLoop) -> Counter[int]:
    """How often a loop and those in it name registers as bounds and conditions."""
    read = (loop.condition,) if isinstance(loop, WhileLoop) else (loop.lower, loop.upper)
    count = Counter(register.id for register in read if isinstance(register, VirtualRegister))
    for inner in _loops(loop.body):
        count += _bounds(inner)
    return count


PASS = rewriting(
    "unroll", "Unroll device loops, so that their trips overlap, if the kernel's settings ask for it.", run
)
