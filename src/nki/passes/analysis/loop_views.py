"""Views that move with loops of known trips, as one static view of all that the trips reach.

A register that counts with loops is a sum of a constant and of a step for each trip of them. A view that starts there
touches, over all trips, what a static view with one more dimension for each loop touches: exactly the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nki.core.register import VirtualRegister
from nki.core.tensor import ScalarOffset, View
from nki.isa.register import register_op
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop, trips_of

Steps = tuple[tuple[int, int], ...]
"""How far a value moves in each trip of a loop, and how many trips there are."""


class Counted(NamedTuple):
    """``start + sum(step * k)`` for k below the trips of each loop, by number of the loop."""

    start: int
    steps: Mapping[int, int]


def spread_out(program: Program, may: Callable[[ForLoop], bool] = lambda loop: True) -> Program:
    """The program with static views in place of those that count with loops; for looking at, not for running.

    Args:
        may: whether the trips of a loop may be taken together; what counts with another one stays dynamic.
    """
    body = _Spreader(may).block(program.body)
    return program if body is program.body else replace(program, body=body)


@dataclass(slots=True)
class _Spreader:
    may: Callable[[ForLoop], bool]
    known: dict[int, Counted] = field(default_factory=dict)
    trips: dict[int, int] = field(default_factory=dict)

    def block(self, block: Block) -> Block:
        items = [self._issued(item) if isinstance(item, Issued) else self._loop(item) for item in block.items]
        if all(new is old for new, old in zip(items, block.items, strict=True)):
            return block
        return Block(block.buffers, items, block.sync)

    def _loop(self, loop: ForLoop | WhileLoop) -> ForLoop | WhileLoop:
        self._forget(loop.body)  # what a trip changes is another value in the next one
        trips, number = trips_of(loop), len(self.trips)
        if isinstance(loop, ForLoop) and isinstance(loop.lower, int) and trips and self.may(loop):
            self.trips[number] = trips
            self.known[loop.index.id] = Counted(loop.lower, {number: loop.step} if trips > 1 else {})
        body = self.block(loop.body)
        self._forget(loop.body)
        if isinstance(loop, ForLoop):
            self.known.pop(loop.index.id, None)
        return loop if body is loop.body else replace(loop, body=body)

    def _forget(self, body: Block) -> None:
        for issued in body.walk():
            for register in written_registers(issued):
                self.known.pop(register.id, None)

    def _issued(self, issued: Issued) -> Issued:
        result = self._result(issued)
        for register in written_registers(issued):
            if result is None:
                self.known.pop(register.id, None)
            else:
                self.known[register.id] = result
        if not any(view.dynamic is not None for _, view in issued.views()):
            return issued
        arguments = list(issued.arguments)
        for position, _ in issued.instruction.tensor_positions:
            value = arguments[position]
            if type(value) is View:
                arguments[position] = self._view(value)
            elif type(value) is tuple:
                arguments[position] = tuple(self._view(view) for view in value)
        return issued._replace(arguments=issued.instruction.arguments._make(arguments))

    def _result(self, issued: Issued) -> Counted | None:
        a = issued.arguments
        match issued.instruction.name:
            case "register_move":
                return self._value(a.src)
            case "register_alu":
                return _combined(a.op, self._value(a.a), self._value(a.b))
        return None

    def _value(self, value: int | VirtualRegister) -> Counted | None:
        return self.known.get(value.id) if isinstance(value, VirtualRegister) else Counted(value, {})

    def _view(self, view: View) -> View:
        """The static view of all trips; the view itself where its start is not known, or leaves the tensor."""
        dynamic = view.dynamic
        if not isinstance(dynamic, ScalarOffset) or not isinstance(dynamic.indices, VirtualRegister):
            return view
        counted = self.known.get(dynamic.indices.id)
        if counted is None:
            return view
        steps = tuple((step * dynamic.scale, self.trips[loop]) for loop, step in counted.steps.items() if step)
        return _moved(view, dynamic.scale, counted.start * dynamic.scale, steps)


def _combined(op: register_op, a: Counted | None, b: Counted | None) -> Counted | None:
    if a is None or b is None:
        return None
    match op:
        case register_op.add | register_op.subtract:
            sign = 1 if op is register_op.add else -1
            loops = a.steps.keys() | b.steps.keys()
            steps = {loop: a.steps.get(loop, 0) + sign * b.steps.get(loop, 0) for loop in loops}
            return Counted(a.start + sign * b.start, steps)
        case register_op.multiply if not a.steps or not b.steps:
            factor, other = (a.start, b) if not a.steps else (b.start, a)
            return Counted(factor * other.start, {loop: factor * step for loop, step in other.steps.items()})
        case register_op.left_shift if not b.steps and 0 <= b.start < 32:
            return _combined(register_op.multiply, a, Counted(1 << b.start, {}))
    return None


def _moved(view: View, scale: int, start: int, steps: Steps) -> View:
    """The view over all trips; the view itself where that is none, or leaves the tensor."""
    offset, row, inner = view.offset + start, view.row, 1 if view.on_chip else 0
    by_partitions = view.on_chip and scale % row == 0
    if by_partitions and steps:
        return view  # partitions of a view are one after another
    if view.on_chip and not by_partitions and offset // row != view.offset // row:
        return view
    sizes = (*view.shape[:inner], *(trips for _, trips in steps), *view.shape[inner:])
    strides = (*view.strides[:inner], *(step for step, _ in steps), *view.strides[inner:])
    spans = [(size - 1) * stride for size, stride in zip(sizes[inner:], strides[inner:], strict=True)]
    first = offset % row
    low, high = first + sum(min(0, span) for span in spans), first + sum(max(0, span) for span in spans)
    if offset < 0 or low < 0 or high >= row:
        return view
    return view._replace(shape=sizes, strides=strides, offset=offset, dynamic=None)


def written_registers(issued: Issued) -> list[VirtualRegister]:
    """The registers that an instruction writes to."""
    return [
        value
        for operand, value in zip(issued.instruction.operands.values(), issued.arguments, strict=True)
        if operand.writes and isinstance(value, VirtualRegister)
    ]
