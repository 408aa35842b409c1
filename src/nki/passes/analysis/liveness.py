"""Live ranges: from which instruction to which a buffer or a register holds something that is still needed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, View
from nki.spec.instruction import Instruction
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

Loop = ForLoop | WhileLoop
Path = tuple[int, ...]
"""The loops around an instruction, outermost first, by number."""


class Range(NamedTuple):
    """A buffer and the first and last position at which it is live, both included."""

    buffer: Buffer
    first: int
    last: int


class RegisterRange(NamedTuple):
    """A register, the position that first writes it, and the last one that needs it."""

    register: VirtualRegister
    first: int
    last: int


class Liveness(NamedTuple):
    """Live ranges of a program.

    Attributes:
        positions: number of instructions; position p is the p-th of ``program.body.walk()``.
        buffers: of the on-chip buffers that are used at all, by first position.
        registers: of all registers that are used, by first position.
    """

    positions: int
    buffers: tuple[Range, ...]
    registers: tuple[RegisterRange, ...]


def liveness(program: Program) -> Liveness:
    """The live ranges in program order.

    The positions of a loop are those of its body, once. A buffer lives from the first to the last item of its own block
    that uses it, and a loop is one item: a buffer from outside that is used in a loop lives during all of it, one that
    belongs to the body lives in each trip anew. A register belongs to the innermost block that holds all its uses.
    """
    walk = _LivenessAnalysis()
    walk.block(program.body, ())
    found = [Range(span.buffer, span.first, span.last) for span in walk.spans.values() if span.first >= 0]
    found.sort(key=lambda item: (item.first, item.buffer.id))
    registers = [walk.register_range(register) for register in walk.registers]
    registers.sort(key=lambda item: (item.first, item.register.id))
    return Liveness(walk.position, tuple(found), tuple(registers))


class _BufferSpan:
    """What is known of a buffer during the walk; `depth` is the number of loops around its block."""

    __slots__ = ("buffer", "depth", "first", "last")

    def __init__(self, buffer: Buffer, depth: int) -> None:
        self.buffer = buffer
        self.depth = depth
        self.first = self.last = -1


class _LivenessAnalysis:
    """One pass over a program, which notes every use."""

    def __init__(self) -> None:
        self.position = 0
        self.spans: dict[int, _BufferSpan] = {}
        self.registers: dict[VirtualRegister, list[tuple[int, Path]]] = {}
        self._extents: list[tuple[int, int]] = []  # of every loop: its first and last position
        self._used: list[dict[int, _BufferSpan]] = []  # for every open loop: spans of its own block that it uses

    def block(self, block: Block, path: Path) -> None:
        depth = len(path)
        for buffer in block.buffers:
            if buffer.on_chip:
                self.spans[buffer.id] = _BufferSpan(buffer, depth)
        for item in block.items:
            if type(item) is Issued:
                self._issued(item, path)
                self.position += 1
            else:
                self._loop(item, path)  # type: ignore[arg-type]

    def register_range(self, register: VirtualRegister) -> RegisterRange:
        """From all uses: those in a loop below the common block count as the whole loop."""
        uses = self.registers[register]
        home = uses[0][1]
        for _, path in uses:
            home = home[: next((i for i, (a, b) in enumerate(zip(home, path, strict=False)) if a != b), len(path))]
        depth = len(home)
        extents = [self._extents[path[depth]] if len(path) > depth else (at, at) for at, path in uses]
        return RegisterRange(register, min(first for first, _ in extents), max(last for _, last in extents))

    def _loop(self, loop: Loop, path: Path) -> None:
        number, first = len(self._extents), self.position
        self._extents.append((first, first))
        self._used.append({})
        self.block(loop.body, (*path, number))
        last = max(first, self.position - 1)
        self._extents[number] = (first, last)
        for span in self._used.pop().values():
            span.last = last
        if isinstance(loop, ForLoop):
            # Counter and condition live from the first to the last position of the loop: they are asked for after every
            # trip.
            self._registers((loop.lower, loop.upper, loop.index), first, path)
            self._registers((loop.index,), last, path)
        else:
            self._registers((loop.condition,), first, path)
            self._registers((loop.condition,), last, path)

    def _issued(self, issued: Issued, path: Path) -> None:
        arguments = issued.arguments
        for place, _ in issued.instruction.tensor_positions:
            value = arguments[place]
            if type(value) is View:
                span = self.spans.get(value[0].id)
                if span is not None and not path:  # outside of all loops its own block is the outermost one
                    if span.first < 0:
                        span.first = self.position
                    span.last = self.position
                elif span is not None:
                    self._touch(span, len(path), path)
                if value[5] is not None:
                    self._indices(value, path)
            elif type(value) is tuple:
                for view in value:
                    self._view(view, path)
        places = register_places(issued.instruction)
        if places:
            self._registers((arguments[place] for place in places), self.position, path)

    def _view(self, view: View, path: Path) -> None:
        span = self.spans.get(view.buffer.id)
        if span is not None:
            self._touch(span, len(path), path)
        if view.dynamic is not None:
            self._indices(view, path)

    def _indices(self, view: View, path: Path) -> None:
        """What a dynamic address is read from."""
        assert view.dynamic is not None, "its address is dynamic"
        indices = view.dynamic.indices
        if isinstance(indices, View):
            self._view(indices, path)
        else:
            self._registers((indices,), self.position, path)

    def _touch(self, span: _BufferSpan, depth: int, path: Path) -> None:
        if depth == span.depth:
            if span.first < 0:
                span.first = self.position
            span.last = self.position
            return
        # Used in a loop inside of its block: it begins with that loop, and ends when `_loop` knows where that ends.
        if span.first < 0:
            span.first = self._extents[path[span.depth]][0]
        self._used[span.depth][span.buffer.id] = span

    def _registers(self, values: Iterable[Any], at: int, path: Path) -> None:
        for value in values:
            if isinstance(value, VirtualRegister):
                self.registers.setdefault(value, []).append((at, path))


@cache  # one for each declared instruction
def register_places(instruction: Instruction[Any]) -> tuple[int, ...]:
    """Positions of the arguments that may be registers."""
    return tuple(
        place
        for place, operand in enumerate(instruction.operands.values())
        if operand.kind in ("register", "register_or_int")
    )
