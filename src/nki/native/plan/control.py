"""Records of what steers a program: registers, addresses that depend on them, and device loops.

Registers are words of the context behind the base addresses. An operand at a dynamic address has a base of its own,
which a record before its instruction sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, ScalarOffset, View
from nki.native.operand_layout import HEADER, Place, start_of
from nki.native.primitives import control
from nki.native.primitives.abi import ALONE
from nki.sim.walk import TRIP_LIMIT
from nki.spec.engine import oob_mode
from nki.spec.program import ForLoop, Issued, WhileLoop

PlaceOf = Callable[[Buffer], Place]
FUEL = 1 << 14
"""Trips after which native code asks Python whether to go on, so that a program can be interrupted."""
_REGISTER_BYTES = 4
_WORD = 1 << 8 * _REGISTER_BYTES


class Spot(NamedTuple):
    """An operand that one word of the program is read from or written to."""

    view: View
    place: Place
    writes: bool


class Control:
    """Gives out registers, and makes the records that use them.

    Args:
        first: number of the first word behind the base addresses.
        functions: addresses by name.
        place_of: where buffers are.
    """

    def __init__(self, first: int, functions: Mapping[str, int], place_of: PlaceOf) -> None:
        self._next = first
        self._functions = functions
        self._place_of = place_of
        self._bases: list[int] = []
        self._hidden: dict[tuple[int, str], int] = {}
        self.registers: dict[int, int] = {}
        self.fuel = self._taken()

    @property
    def end(self) -> int:
        """Behind the last number that was given out."""
        return self._next

    def number(self, register: VirtualRegister) -> int:
        """The word that holds a register."""
        if register.id not in self.registers:
            self.registers[register.id] = self._taken()
        return self.registers[register.id]

    def instruction(self, issued: Issued) -> tuple[list[int], list[Spot]] | None:
        """The record of an instruction on registers, and what it touches in memory; None for all other instructions."""
        make = _INSTRUCTIONS.get(issued.instruction.name)
        return None if make is None else make(self, issued.arguments)

    def based(self, view: View, place: Place, which: int) -> tuple[list[list[int]], Place]:
        """The records that set the base of an operand at a dynamic address, and the place with that base.

        `which` of the operands of an instruction this is.
        """
        dynamic = view.dynamic
        assert isinstance(dynamic, ScalarOffset), "others have no records"
        while len(self._bases) <= which:
            self._bases.append(self._taken())
        records: list[list[int]] = []
        if isinstance(dynamic.indices, View):
            register = self._other("index", which)
            records += [self._load(dynamic.indices, register, dynamic.indices.dtype.kind == "int")]
        else:
            register = self.number(dynamic.indices)
        low, high, total, unit = _reach(view, dynamic.scale, place)
        base = self._bases[which]
        limits = (dynamic.scale, -low, total - 1 - high, unit)
        records.append(self._record(control.OFFSET, register, place.base, base, *limits))
        return records, place._replace(base=base)

    def start(self, loop: ForLoop | WhileLoop) -> list[int]:
        """The record before a loop; its target is where the loop is over."""
        if isinstance(loop, WhileLoop):
            return self._record(control.WHILE_START, self._of(loop, "trips"), self.number(loop.condition))
        bounds = (*self._operand(loop.lower, wraps=False), *self._operand(loop.upper, wraps=False))
        return self._record(control.FOR_START, *self._of_for(loop), *bounds)

    def next(self, loop: ForLoop | WhileLoop, body: int) -> list[int]:
        """The record after the body of a loop, which begins at word `body`."""
        if isinstance(loop, WhileLoop):
            numbers = (self._of(loop, "trips"), self.number(loop.condition), TRIP_LIMIT, self.fuel)
            words = self._record(control.WHILE_NEXT, *numbers)
        else:
            words = self._record(control.FOR_NEXT, *self._of_for(loop), loop.step, self.fuel)
        words[control.TARGET] = body
        return words

    def total(self, loop: ForLoop | WhileLoop) -> int:
        """The word that counts the trips of a loop over all times that it is entered."""
        return self._of(loop, "total")

    def count(self, loop: ForLoop | WhileLoop) -> list[int]:
        """The record at the begin of a trip that counts it."""
        total = self.total(loop)
        return self._record(control.ALU, total, 1, total, 0, 1, control.OPERATIONS.index("add"))

    def _of_for(self, loop: ForLoop) -> tuple[int, int, int]:
        return self._of(loop, "counter"), self.number(loop.index), self._of(loop, "limit")

    def _of(self, loop: ForLoop | WhileLoop, what: str) -> int:
        return self._other(what, id(loop))

    def _other(self, what: str, key: int) -> int:
        if (key, what) not in self._hidden:
            self._hidden[key, what] = self._taken()
        return self._hidden[key, what]

    def _taken(self) -> int:
        self._next += 1
        return self._next - 1

    def _record(self, name: str, *words: int) -> list[int]:
        return [self._functions[name], HEADER + len(words), 0, 0, *words]

    def _operand(self, value: int | VirtualRegister, wraps: bool = True) -> tuple[int, int]:
        if isinstance(value, VirtualRegister):
            return 1, self.number(value)
        return 0, (value + _WORD // 2) % _WORD - _WORD // 2 if wraps else value

    def _alu(self, a: Any) -> tuple[list[int], list[Spot]]:
        operation = control.OPERATIONS.index(a.op.name)
        numbers = (self.number(a.dst), *self._operand(a.a), *self._operand(a.b), operation)
        return self._record(control.ALU, *numbers), []

    def _move(self, a: Any) -> tuple[list[int], list[Spot]]:
        numbers = (self.number(a.dst), *self._operand(a.src), 0, 0, control.OPERATIONS.index("add"))
        return self._record(control.ALU, *numbers), []

    def _register_load(self, a: Any) -> tuple[list[int], list[Spot]] | None:
        if a.src.dynamic is not None:
            return None
        signed = a.src.dtype.kind != "uint" or a.src.dtype.itemsize == _REGISTER_BYTES
        return self._load(a.src, self.number(a.dst), signed), [Spot(a.src, self._place_of(a.src.buffer), False)]

    def _load(self, view: View, register: int, signed: bool) -> list[int]:
        place = self._place_of(view.buffer)
        name = control.LOADS[view.dtype.itemsize]
        return self._record(name, place.base, start_of(view, place)[0], register, int(signed))

    def _register_store(self, a: Any) -> tuple[list[int], list[Spot]] | None:
        if a.dst.dynamic is not None:
            return None
        place = self._place_of(a.dst.buffer)
        name = control.STORES[a.dst.dtype.itemsize]
        words = self._record(name, place.base, start_of(a.dst, place)[0], self.number(a.src))
        words[1] |= ALONE
        words[2] = 1
        return words, [Spot(a.dst, place, True)]


_INSTRUCTIONS: Mapping[str, Callable[[Control, Any], tuple[list[int], list[Spot]] | None]] = {
    "register_alu": Control._alu,
    "register_move": Control._move,
    "register_load": Control._register_load,
    "register_store": Control._register_store,
}


def steers(issued: Issued) -> bool:
    """Whether an instruction works on registers only, or between them and memory."""
    return issued.instruction.name in _INSTRUCTIONS


def at_scalar_offsets(issued: Issued) -> Issued | None:
    """The instruction as if its scalar offsets were 0; None if it has other dynamic addresses, or may skip."""
    views = [view for _, view in issued.views() if view.dynamic is not None]
    if not views:
        return issued
    if oob_mode.skip in issued.arguments or not all(_is_scalar(view) for view in views):
        return None
    return issued._replace(arguments=issued.arguments._make([_still(value) for value in issued.arguments]))


def apart(views: Sequence[View | None], places: Sequence[Place], writes: Sequence[bool]) -> bool:
    """Whether no operand at a dynamic address may share bytes with another one, if one of them is written."""
    for i, view in enumerate(views):
        if view is None or view.dynamic is None:
            continue
        for j, place in enumerate(places):
            same = (place.base, place.memory) == (places[i].base, places[i].memory)
            if i != j and same and (writes[i] or writes[j]):
                return False
    return True


def still(view: View | None) -> View | None:
    """The view as if its scalar offset were 0."""
    return view if view is None or view.dynamic is None else view._replace(dynamic=None)


def _still(value: Any) -> Any:
    if type(value) is View:
        return still(value)
    return tuple([_still(item) for item in value]) if type(value) is tuple else value


def _is_scalar(view: View) -> bool:
    dynamic = view.dynamic
    if not isinstance(dynamic, ScalarOffset):
        return False
    index = dynamic.indices
    if not isinstance(index, View):
        return True
    return index.dynamic is None and index.dtype.is_integer and index.dtype.itemsize in control.LOADS


def _reach(view: View, scale: int, place: Place) -> tuple[int, int, int, int]:
    """At offset 0 the lowest and highest element that a view touches; how many there are, and the bytes of one step.

    As `nki.sim.addresses` counts them: a free offset stays in the tensor's part of the partition.
    """
    size = view.dtype.itemsize
    start, dims, total, unit = view.offset, 0, view.buffer.nbytes // size, scale * size
    if view.on_chip and scale % view.row:
        start, dims, total = view.free_offset, 1, view.row
    elif view.on_chip:
        unit = scale // view.row * place.pitch
    spans = [(n - 1) * s for n, s in zip(view.shape[dims:], view.strides[dims:], strict=True)]
    return start + sum([s for s in spans if s < 0]), start + sum([s for s in spans if s > 0]), total, unit
