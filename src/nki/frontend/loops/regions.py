"""Regions: the first pass over the body of a device loop is recorded, and every later pass must repeat it.

While tracing, a body is passed once. In eager mode it is passed once for every trip, with values; a loop without trips
is still passed once, without executing anything, so that what is recorded never depends on the data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from nki.core.errors import FrontendError
from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.core.tensor import Buffer, FreeIndirection, ScalarOffset, VectorOffset, View
from nki.sim.machine import Machine
from nki.sim.walk import check_trips, run_body
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

Item = Issued | ForLoop | WhileLoop


class BodyPass:
    """One pass over a block: `recording` fills it, any other compares with what is there."""

    __slots__ = ("_buffer", "_item", "_register", "block", "recording", "registers")

    def __init__(self, block: Block, registers: list[VirtualRegister], recording: bool) -> None:
        self.block = block
        self.registers = registers
        self.recording = recording
        self._item = self._buffer = self._register = 0

    @property
    def passed(self) -> list[Item]:
        """What of the block this pass has been through; of a pass that records, the block's own list."""
        return self.block.items if self.recording else self.block.items[: self._item]

    @property
    def position(self) -> int:
        """How many items that are."""
        return len(self.block.items) if self.recording else self._item

    @property
    def allocated(self) -> list[Buffer]:
        """The buffers of the block that this pass has allocated."""
        return self.block.buffers if self.recording else self.block.buffers[: self._buffer]

    def item(self, item: Item) -> Item:
        """Record it, or return the one that it repeats."""
        if self.recording:
            self.block.items.append(item)
            return item
        known = _at(self.block.items, self._item)
        self._item += 1
        if known is None or not _repeats(known, item):
            raise _varies(item, known)
        return known

    def buffer(self, wanted: tuple[Any, ...], where: Location) -> Buffer:
        """The buffer of the first pass; `wanted` is its shape, dtype, region, address and location."""
        known = _at(self.block.buffers, self._buffer)
        self._buffer += 1
        if known is None or (known.shape, known.dtype, known.region, known.address, known.location) != wanted:
            raise varies(f"allocates {wanted[1]}{list(wanted[0])}", where)
        return known

    def register(self, make: Callable[[], VirtualRegister]) -> VirtualRegister:
        """A new register, or the one of the first pass."""
        if not self.recording and self._register < len(self.registers):
            self._register += 1
            return self.registers[self._register - 1]
        made = make()
        self.registers.append(made)
        self._register += 1
        return made

    def check_end(self, where: Location) -> None:
        """Raise if the first pass went further."""
        known = None if self.recording else _at(self.block.items, self._item)
        if known is not None:
            raise varies(f"ends before {_describe(known)} at {known.location}", where)


class Regions:
    """The loops that are open, innermost last.

    Attributes:
        current: the pass that takes what is issued.
        silent: True while a body is passed that has no trips, so that nothing of it executes.
    """

    def __init__(self, body: Block, machine: Machine | None) -> None:
        self.current = BodyPass(body, [], True)
        self.silent = False
        self._machine = machine
        self._open: list[LoopRegion] = []
        self._ended: set[int] = set()
        self._registers: dict[int, list[VirtualRegister]] = {}

    @property
    def machine(self) -> Machine | None:
        """What executes, if anything does now."""
        return None if self.silent else self._machine

    def stop(self) -> None:
        """Execute nothing from now on."""
        self._machine = None

    def runs(self, body: BodyPass) -> bool:
        """Whether a pass is not over: it is the running one, or a loop in it runs."""
        return body is self.current or any(region.outer is body for region in self._open)

    @property
    def innermost(self) -> LoopRegion | None:
        """The loop whose body is running."""
        return self._open[-1] if self._open else None

    def issue(self, issued: Issued) -> Machine | None:
        """Record an instruction of the running body; returns what executes it, if anything does now."""
        if self._ended:
            for name, view in issued.views():
                self.check_scope(view, name)
        current = self.current
        if current.recording:
            current.block.items.append(issued)
        else:
            current.item(issued)
        return None if self.silent else self._machine

    def open(self, loop: ForLoop | WhileLoop) -> LoopRegion:
        """A loop of the running body, before its first trip."""
        recording = self.current.recording
        known = self.current.item(loop)
        assert isinstance(known, ForLoop | WhileLoop), "a loop repeats a loop"
        region = LoopRegion(self, known, recording)
        self._open.append(region)
        return region

    def begin(self, region: LoopRegion, recording: bool) -> None:
        """The running pass becomes one over the body of `region`."""
        body = region.loop.body
        self._ended.difference_update(buffer.id for buffer in body.buffers)
        self.current = BodyPass(body, self._registers.setdefault(id(body), []), recording)

    def end(self, region: LoopRegion, outer: BodyPass) -> None:
        """The pass over the body of `region` is complete."""
        self.check_innermost(region)
        self.current.check_end(region.loop.location)
        self._ended.update(buffer.id for buffer in region.loop.body.buffers)
        self.current = outer

    def close(self, region: LoopRegion) -> None:
        """The loop has no more trips."""
        self.check_innermost(region)
        self._open.pop()

    def check_innermost(self, region: LoopRegion) -> None:
        """Raise if a loop inside of `region` was left before it ended."""
        if self.innermost is not region:
            raise left(self._open[-1].loop.location)

    def check_closed(self) -> None:
        """Raise if the kernel ends inside of a loop."""
        if self._open:
            raise left(self._open[-1].loop.location)

    def check_scope(self, view: View, name: str) -> None:
        """Raise if the tensor, or its index, was allocated in a loop that has ended."""
        if view.buffer.id in self._ended:
            raise FrontendError(
                "tensor.scope",
                f"{name} is tensor {view.buffer.name!r}, which was allocated in a device loop that has ended",
                rule="a tensor that is allocated in a device loop is a new one in every trip, and ends with it",
                source="nki/api/nki/language/__init__.py fori_loop",
                fix=f"allocate it before the loop (now: {view.buffer.location})",
            )
        match view.dynamic:
            case ScalarOffset(View() as index) | VectorOffset(index) | FreeIndirection(index):
                self.check_scope(index, f"the index of {name}")


class LoopRegion:
    """A device loop: `next_trip` before every pass over the body, until it says no."""

    def __init__(self, regions: Regions, loop: ForLoop | WhileLoop, recording: bool) -> None:
        self.loop = loop
        self.recording = recording
        self.trips = 0
        self._regions = regions
        self._machine = regions.machine
        self.outer = regions.current
        self._values = self._indices()

    def next_trip(self) -> bool:
        """End the running trip, if there is one, and begin the next; False if the loop has ended."""
        if self.trips:
            self._regions.end(self, self.outer)
            # A silent pass is over. Whoever had a machine when the loop was opened executes again.
            self._regions.silent = self._regions.silent and self._machine is None
        self._regions.check_innermost(self)
        if not self._more():
            self._regions.close(self)
            return False
        self._regions.begin(self, self.recording and not self.trips)
        self.trips += 1
        return True

    def finish(self, program: Program) -> None:
        """End a loop whose body Python passes once; further trips are run from what that pass recorded."""
        machine = self._machine
        self._regions.end(self, self.outer)
        self._regions.silent = self._regions.silent and machine is None
        if machine is not None:
            for _ in self._values:
                run_body(machine, program, self.loop.body)
                self.trips += 1
        self._regions.close(self)

    def _more(self) -> bool:
        if self._machine is None:
            return not self.trips
        for value in self._values:
            if isinstance(self.loop, ForLoop):
                self._machine.write_register(self.loop.index, value)
            return True
        # No trip at run time, but a compiled program has the body: pass it once, with nothing executing.
        if self.recording and not self.trips:
            self._regions.silent = True
            return True
        return False

    def _indices(self) -> Iterator[int]:
        """One value for every trip, as the machine sees it."""
        machine, loop = self._machine, self.loop
        if machine is None:
            return
        if isinstance(loop, ForLoop):
            yield from range(machine.read_register(loop.lower), machine.read_register(loop.upper), loop.step)
            return
        while machine.read_register(loop.condition) != 0:
            check_trips(self.trips, loop.location)
            yield 1


def left(where: Location) -> FrontendError:
    """The error for a loop whose body was not passed to its end."""
    return FrontendError(
        "loop.left",
        "a device loop was left before its body ended, by an exception or by a generator that was not exhausted",
        rule="the body of a device loop runs from its first line to its last",
        location=where,
        fix="catch the exception inside the body, or outside the kernel",
    )


def varies(what: str, where: Location | None = None) -> FrontendError:
    """The error for a pass that differs from the first one."""
    return FrontendError(
        "loop.varies",
        f"a later trip of a device loop differs from the first: it {what}",
        rule="the body of a device loop is traced once",
        location=where,
        fix="keep Python decisions and Python counters out of the body, or use a Python range loop",
    )


def _varies(item: Item, known: Item | None) -> FrontendError:
    first = "had nothing more" if known is None else f"had {_describe(known)} at {known.location}"
    if known is not None and _describe(known) == _describe(item):
        first = f"had {_arguments(known)}"
    return varies(f"issues {_describe(item)}{_details(known, item)} where the first {first}", item.location)


def _details(known: Item | None, item: Item) -> str:
    return f" with {_arguments(item)}" if known is not None and _describe(known) == _describe(item) else ""


def _describe(item: Item) -> str:
    return f"nisa.{item.instruction.name}" if isinstance(item, Issued) else "a device loop"


def _arguments(item: Item) -> str:
    text = repr(item.arguments) if isinstance(item, Issued) else f"{_header(item)}"
    return text if len(text) <= 200 else text[:197] + "..."


def _header(loop: ForLoop | WhileLoop) -> tuple[Any, ...]:
    return (loop.lower, loop.upper, loop.step, loop.index) if isinstance(loop, ForLoop) else (loop.condition,)


def _at(items: list[Any], position: int) -> Any:
    return items[position] if position < len(items) else None


def _repeats(a: Item, b: Item) -> bool:
    if type(a) is not type(b) or a.location != b.location:
        return False
    if isinstance(a, Issued):
        return _same(tuple(a), tuple(b))  # type: ignore[arg-type]
    return _same(_header(a), _header(b))  # type: ignore[arg-type]


def _same(a: Any, b: Any) -> bool:
    """Equal, where registers and buffers are the same objects and floats have the same bits."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, VirtualRegister):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    # By ``==``, -0.0 would be 0.0, and no NaN equal to itself.
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    return bool(a == b)
