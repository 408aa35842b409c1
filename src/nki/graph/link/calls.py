"""One call of a kernel in a linked program: its instructions with other buffers, registers, places and lines."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from nki.core.dtypes import uint8
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN, Location
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from nki.graph.ir import TensorType, Value
from nki.graph.kernels import KernelFunction, Kernels, joined
from nki.graph.link import glue
from nki.graph.link.bind import writes
from nki.graph.link.plan import BufferSlot, MemoryPlan
from nki.graph.link.room import Room, Shift
from nki.graph.link.steps import ModelSteps
from nki.graph.sharing import same_bytes
from nki.passes.analysis.liveness import register_places
from nki.spec.model_kernels import KernelCall
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop
from nki.target.model import Target

Nested = ForLoop | WhileLoop
Bindings = dict[int, Buffer]
"""What the device tensors of a kernel are in the linked program, by id."""


class Linker:
    """What all blocks of a program have in common.

    Attributes:
        program: what is made, without its body.
        slots: the buffers of the plan.
        constants: of kernels, by the identity of theirs.
        both: a tensor that the cores name when they meet.
        room: where the next kernel's tensors and transfers go.
        copies, meetings: so far.
        position: of the next instruction in the walk.
        called: the kernels of the program so far.
    """

    def __init__(
        self, name: str, steps: ModelSteps, plan: MemoryPlan, kernels: Kernels, target: Target, core: int, cores: int
    ) -> None:
        self.steps, self.plan, self.kernels, self.target = steps, plan, kernels, target
        self.core, self.cores = core, cores
        self.trace: Hashable = object()
        self.ids = itertools.count()
        self.registers = itertools.count()
        self.copies = self.meetings = 0
        self._written = {plan.of[value] for step in steps.steps for value in writes(step, steps)}
        self.position = 0
        self.called: list[KernelCall] = []
        self.slots = [self._slot(number, slot) for number, slot in enumerate(plan.slots)]
        self.program = Program(
            name=name,
            target=target.name,
            core=core,
            cores=cores,
            inputs=[self.slots[number] for number in (*plan.arguments, *plan.constants)],
            outputs=[whole(self.slots[number]) for number in plan.outputs],
            placement={},
            passed=("link",),
        )
        self.both = Buffer(next(self.ids), "both", MemoryRegion.shared_hbm, (1, 1), uint8, trace=self.trace)
        self.constants: Bindings = {}
        self.room = Room(target, steps.collectives)
        self._glue: dict[Hashable, Program] = {}
        self._locations: dict[tuple[Location, Location], Location] = {}

    def buffer(self, value: Value) -> Buffer:
        """Where a value is."""
        return self.slots[self.plan.of[self.steps.root(value)]]

    def small(self, key: Hashable, function: KernelFunction, types: Sequence[TensorType]) -> Program:
        """A kernel of this package, compiled once."""
        found = self._glue.get((key, *types))
        if found is None:
            name = function.__name__
            found = self._glue[key, *types] = self.kernels.made(name, function, types, UNKNOWN)
        return found

    def location(self, inner: Location, outer: Location) -> Location:
        """The chain of a kernel's line and the model's line that calls it, see `joined`; programs have lines alone."""
        key = (inner, outer)
        found = self._locations.get(key)
        if found is None:
            found = Location(outer.frames) if not inner.frames else joined(inner, outer)
            self._locations[key] = found
        return found

    def fresh(self, buffer: Buffer, alone: bool) -> Buffer:
        """A buffer like one of a kernel, for one call.

        Cores have their shared tensors in the same order, so that those of a kernel on one of two cores are private.
        """
        role = "temporary" if buffer.data is None else "constant"
        private = alone and self.cores > 1 and buffer.region is MemoryRegion.shared_hbm
        region = MemoryRegion.private_hbm if private else buffer.region
        return replace(buffer, id=next(self.ids), trace=self.trace, role=role, region=region)

    def constant(self, buffer: Buffer, alone: bool) -> Buffer:
        """A constant of a kernel, which all its calls share."""
        found = self.constants.get(id(buffer))
        if found is None:
            found = self.constants[id(buffer)] = self.fresh(buffer, alone)
        return found

    def meeting(self) -> Program:
        """The kernel in which the cores wait for each other."""
        found = self._glue.get("meet")
        if found is None:
            found = self._glue["meet"] = self.kernels.made_for(self.cores, "meet", glue.meet, glue.BOTH)[self.core]
        return found

    def _slot(self, number: int, slot: BufferSlot) -> Buffer:
        role = "input" if slot.kind in ("argument", "constant") else "temporary"
        if role == "input" and self.cores > 1 and number not in self._written:
            role = "fixed"  # so that it can be loaded before the cores meet
        shared = slot.kind == "output" or self.cores > 1
        region = MemoryRegion.shared_hbm if shared else MemoryRegion.private_hbm
        return Buffer(next(self.ids), slot.name, region, slot.shape, slot.dtype, role=role, trace=self.trace)


class Call:
    """One call of a kernel: its buffers and registers in the linked program."""

    def __init__(self, linker: Linker, program: Program, names: Bindings, where: Location, shift: Shift) -> None:
        self._linker = linker
        self._shift = shift
        self._placement = program.placement or {}
        self._alone = program.cores == 1
        self._loose = not program.edges and not program.fences  # nothing counts positions of its instructions
        self._names = names
        self._where = where
        self.registers: dict[VirtualRegister, VirtualRegister] = {}

    def into(self, target: Block, source: Block) -> None:
        """Append the items of a block."""
        assert target.sync is not None and (source.sync is not None or not source.items), "kernels are scheduled"
        for buffer in source.buffers:
            self._buffer(buffer, target)
        for item, sync in zip(source.items, source.sync or (), strict=True):
            if isinstance(item, Issued):
                issued = self._issued(item)
                if self._loose and same_bytes(issued):
                    continue
                self._linker.position += 1
                target.items.append(issued)
                target.sync.append(None if sync is None else Sync(self._shift.queues.get(sync.queue, sync.queue)))
            else:
                target.items.append(self._loop(item))
                target.sync.append(None)

    def _buffer(self, buffer: Buffer, target: Block) -> None:
        if buffer.id in self._names:
            return
        if buffer.data is not None:
            self._names[buffer.id] = self._linker.constant(buffer, self._alone)
            return
        where = self._linker.location(buffer.location, self._where)
        made = replace(self._linker.fresh(buffer, self._alone), location=where)
        place = self._placement.get(buffer.id)
        if place is not None:
            assert self._linker.program.placement is not None, "a linked program has places"
            self._linker.program.placement[made.id] = self._shift.place(buffer, place)
        target.buffers.append(made)
        self._names[buffer.id] = made

    def _loop(self, loop: Nested) -> Nested:
        body = Block([], [], [])
        where = self._linker.location(loop.location, self._where)
        if isinstance(loop, ForLoop):
            lower, upper, index = map(self._value, (loop.lower, loop.upper, loop.index))
            self.into(body, loop.body)
            return replace(loop, lower=lower, upper=upper, index=index, body=body, location=where)
        condition = self._value(loop.condition)
        self.into(body, loop.body)
        return replace(loop, condition=condition, body=body, location=where)

    def _issued(self, issued: Issued) -> Issued:
        instruction = issued.instruction
        arguments = list(issued.arguments)
        for place, _ in instruction.tensor_positions:
            value = arguments[place]
            if type(value) is View:
                arguments[place] = self._view(value)
            elif type(value) is tuple:
                arguments[place] = tuple([self._view(view) for view in value])
        for place in register_places(instruction):
            arguments[place] = self._value(arguments[place])
        where = self._linker.location(issued.location, self._where)
        return Issued(instruction, instruction.arguments._make(arguments), where, issued.engine)

    def _view(self, view: View) -> View:
        dynamic = view.dynamic
        if dynamic is not None:
            indices: Any = dynamic.indices
            other = self._view(indices) if type(indices) is View else self._value(indices)
            dynamic = dynamic._replace(indices=other)
        return View(self._names[view.buffer.id], view.dtype, view.shape, view.strides, view.offset, dynamic)

    def _value(self, value: Any) -> Any:
        if not isinstance(value, VirtualRegister):
            return value
        found = self.registers.get(value)
        if found is None:
            found = VirtualRegister(next(self._linker.registers), value.frozen, self._linker.trace)
            self.registers[value] = found
        return found
