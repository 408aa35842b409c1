"""Programs to MLIR: one `nki.kernel` per core, one `nisa` operation per instruction."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from nki.core.errors import IRError
from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.core.tensor import Buffer, View
from nki.ir.context import session, shared_context
from nki.ir.locations import LocationWriter
from nki.ir.mlir import (
    Attribute,
    Context,
    DenseI32ArrayAttr,
    InsertionPoint,
    MlirLocation,
    Module,
    Operation,
    Value,
)
from nki.ir.mlir import Block as MlirBlock
from nki.ir.nisa import ENGINE, QUEUE, SEGMENTS, SIGNALS, WAITS, Field, OpSpec, op_spec
from nki.ir.types import Types
from nki.ir.values import ValueWriter
from nki.ir.views import DYNAMIC_NAMES
from nki.spec.engine import engine as Engine
from nki.spec.instruction import REGISTRY
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop

VERSION = 2
"""Version of the two dialects; a file with another one is refused."""


def build(programs: Sequence[Program], context: Context | None = None) -> Module:
    """The module with one kernel per program; every operation carries the location of what it came from.

    Raises:
        IRError: "ir.scope" if a tensor is used outside the loop that allocates it, "ir.value" for a value that an
            instruction cannot have, "ir.instruction" for an instruction that is not in the registry.
    """
    with session(context or shared_context()):
        unknown = MlirLocation.unknown()
        module = Module.create(loc=unknown)
        values = ValueWriter()
        module.operation.attributes["nki.version"] = values.integer(VERSION)
        shared = _Shared(values, Types(), LocationWriter())
        point = InsertionPoint(module.body)
        for program in programs:
            _KernelBuilder(program, shared, point).build()
    return module


class _Shared:
    """What all kernels of a module have in common: attributes, types and locations that were made before."""

    def __init__(self, values: ValueWriter, types: Types, locations: LocationWriter) -> None:
        self.values = values
        self.types = types
        self.locations = locations
        self.engines = {member: values.text(member.name) for member in Engine}
        self.segments: dict[tuple[int, ...], Attribute] = {}
        self._syncs: dict[Sync, dict[str, Attribute]] = {}
        self.specs: dict[str, OpSpec] = {name: op_spec(instruction) for name, instruction in REGISTRY.items()}

    def sync(self, sync: Sync) -> dict[str, Attribute]:
        """The attributes of a scheduled instruction."""
        made = self._syncs.get(sync)
        if made is None:
            made = self._syncs[sync] = {QUEUE: self.values.text(sync.queue)}
            if sync.waits:
                made[WAITS] = self.values.text(",".join(f"{wait.queue}:{wait.signals}" for wait in sync.waits))
            if sync.signals:
                made[SIGNALS] = self.values.boolean(True)
        return made

    def sizes(self, sizes: tuple[int, ...]) -> Attribute:
        made = self.segments.get(sizes)
        if made is None:
            made = self.segments[sizes] = DenseI32ArrayAttr.get(sizes)
        return made


class _KernelBuilder:
    """Builds one kernel; holds the values that are in scope."""

    def __init__(self, program: Program, shared: _Shared, point: InsertionPoint) -> None:
        self._program = program
        self._shared = shared
        self._values = shared.values
        self._types = shared.types
        self._write_location = shared.locations.write
        self._at = point
        self._buffers: dict[int, Value] = {}
        self._views: dict[View, Value] = {}
        self._new_views: list[View] = []
        self._registers: dict[int, Value] = {}
        self._placement: dict[int, tuple[int, int]] = {}

    def build(self) -> None:
        """Inputs, registers, then the body; registers are declared first, because loops share them."""
        program, values = self._program, self._values
        where = self._write_location(program.location)
        attributes = {
            "name": values.text(program.name),
            "target": values.text(program.target),
            "core": values.integer(program.core),
            "cores": values.integer(program.cores),
        }
        for attribute, pairs in (("edges", program.edges), ("fences", program.fences)):
            if pairs:
                attributes[attribute] = values.integers(tuple(position for pair in pairs for position in pair))
        if program.passed:
            attributes["passes"] = values.text(",".join(program.passed))
        if program.placement is not None:
            attributes["allocated"] = values.boolean(True)
            self._placement = program.placement
        kernel = Operation.create("nki.kernel", attributes=attributes, regions=1, loc=where, ip=self._at)
        block = kernel.regions[0].blocks.append()
        self._at = InsertionPoint(block)
        for buffer in program.inputs:
            self._declare("nki.input", buffer)
        marker = Operation.create("nki.reg", results=[self._types.register], loc=where, ip=self._at)
        self._register_point = InsertionPoint(marker)
        self._block(program.body, keep=True)
        outputs = [(view, self._write_location(view.buffer.location), view.buffer) for view in program.outputs]
        results = [self._item(*output) for output in outputs]
        Operation.create("nki.return", operands=results, loc=where, ip=self._at)
        marker.erase()

    def _block(self, block: Block, keep: bool = False) -> None:
        """Allocations, then what happens; names of a loop's body end with it."""
        outer, self._new_views = self._new_views, []
        for buffer in block.buffers:
            self._declare("nki.alloc", buffer)
        syncs = block.sync if block.sync is not None else repeat(None)
        for item, sync in zip(block.items, syncs, strict=False):
            if isinstance(item, Issued):
                self._located(item, sync)
            else:
                self._loop(item)
        if not keep:
            for view in self._new_views:
                del self._views[view]
            for buffer in block.buffers:
                del self._buffers[buffer.id]
        self._new_views = outer

    def _declare(self, name: str, buffer: Buffer) -> None:
        values = self._values
        attributes = {
            "id": values.integer(buffer.id),
            "name": values.text(buffer.name),
            "role": values.text(buffer.role),
        }
        if buffer.address is not None:
            attributes["address"] = values.integers(buffer.address)
        if buffer.id in self._placement:
            attributes["placement"] = values.integers(self._placement[buffer.id])
        if buffer.data is not None:
            attributes["data"] = values.text(base64.b64encode(buffer.data).decode())
        self._buffers[buffer.id] = Operation.create(
            name,
            results=[self._types.shaped("buffer", buffer.shape, buffer.dtype, buffer.region)],
            attributes=attributes,
            loc=self._write_location(buffer.location),
            ip=self._at,
        ).result

    def _located(self, issued: Issued, sync: Sync | None) -> None:
        try:
            self._instruction(issued, sync)
        except IRError as error:
            if not error.location.frames:
                error.location = issued.location
            raise

    def _instruction(self, issued: Issued, sync: Sync | None) -> None:
        instruction, arguments, location, engine = issued
        spec = self._shared.specs.get(instruction.name)
        if spec is None or spec.instruction is not instruction:
            raise _unknown(issued)
        where = self._write_location(location)
        attributes = {ENGINE: self._shared.engines[engine]}
        if sync is not None:
            attributes.update(self._shared.sync(sync))
        operands: list[Value] = []
        sizes = []
        for field, value in zip(spec.fields, arguments, strict=True):
            form = field.form
            if form == "attribute":
                if value is not None:
                    attributes[field.name] = self._values.write(value, field)
                continue
            before = len(operands)
            self._operand(field, value, issued, where, operands, attributes)
            sizes.append(len(operands) - before)
        if spec.segmented:
            attributes[SEGMENTS] = self._shared.sizes(tuple(sizes))
        Operation.create(spec.name, operands=operands, attributes=attributes, loc=where, ip=self._at)

    def _operand(
        self,
        field: Field,
        value: Any,
        issued: Issued,
        where: MlirLocation,
        operands: list[Value],
        attributes: dict[str, Attribute],
    ) -> None:
        if type(value) is View:
            operands.append(self._view(value, where, issued))
        elif type(value) is VirtualRegister:
            operands.append(self._register(value, where))
        elif field.form == "operands":
            operands += [self._item(view, where, issued) for view in value]
        elif value is not None:
            attributes[field.name] = self._values.write(value, field)

    def _view(self, view: View, where: MlirLocation, user: Issued | Buffer) -> Value:
        made = self._views.get(view)
        if made is None:
            made = self._views[view] = self._new_view(view, where, user)
            self._new_views.append(view)
        return made

    def _item(self, view: View, where: MlirLocation, user: Issued | Buffer) -> Value:
        return Operation.create(
            "nki.list_item",
            results=[self._types.item],
            operands=[self._view(view, where, user)],
            loc=where,
            ip=self._at,
        ).result

    def _new_view(self, view: View, where: MlirLocation, user: Issued | Buffer) -> Value:
        buffer, dtype, shape, strides, offset, dynamic = view
        owner = self._buffers.get(buffer.id)
        if owner is None:
            raise _out_of_scope(buffer, user.location)
        values = self._values
        operands = [owner]
        attributes = {"offset": values.integer(offset), "strides": values.integers(strides)}
        if dynamic is not None:
            indices: Any
            indices, scale = dynamic
            is_register = isinstance(indices, VirtualRegister)
            operands.append(self._register(indices, where) if is_register else self._view(indices, where, user))
            attributes["dynamic"] = values.text(DYNAMIC_NAMES[type(dynamic)])
            attributes["scale"] = values.integer(scale)
        kind = self._types.shaped("view", shape, dtype, buffer.region)
        return Operation.create(
            "nki.subview", results=[kind], operands=operands, attributes=attributes, loc=where, ip=self._at
        ).result

    def _register(self, register: VirtualRegister, where: MlirLocation) -> Value:
        made = self._registers.get(register.id)
        if made is None:
            attributes = {"id": self._values.integer(register.id), "frozen": self._values.boolean(register.frozen)}
            made = self._registers[register.id] = Operation.create(
                "nki.reg",
                results=[self._types.register],
                attributes=attributes,
                loc=where,
                ip=self._register_point,
            ).result
        return made

    def _loop(self, loop: ForLoop | WhileLoop) -> None:
        where = self._write_location(loop.location)
        if isinstance(loop, ForLoop):
            operation = self._for(loop, where)
        else:
            operands = [self._register(loop.condition, where)]
            operation = Operation.create("nki.while", operands=operands, regions=1, loc=where, ip=self._at)
        outer, self._at = self._at, InsertionPoint(_body(operation))
        self._block(loop.body)
        Operation.create("nki.yield", loc=where, ip=self._at)
        self._at = outer

    def _for(self, loop: ForLoop, where: MlirLocation) -> Operation:
        """A bound is an operand if it is a register, else an attribute."""
        operands = [self._register(loop.index, where)]
        attributes = {"step": self._values.integer(loop.step)}
        sizes = [1]
        for name, bound in (("lower", loop.lower), ("upper", loop.upper)):
            if isinstance(bound, VirtualRegister):
                operands.append(self._register(bound, where))
                sizes.append(1)
            else:
                attributes[name] = self._values.integer(bound)
                sizes.append(0)
        attributes[SEGMENTS] = self._shared.sizes(tuple(sizes))
        return Operation.create("nki.for", operands=operands, attributes=attributes, regions=1, loc=where, ip=self._at)


def _body(operation: Operation) -> MlirBlock:
    return operation.regions[0].blocks.append()


def _out_of_scope(buffer: Buffer, where: Location) -> IRError:
    return IRError(
        "ir.scope",
        f"tensor {buffer.name} is used outside the device loop that allocates it",
        rule="a tensor that is allocated in a device loop is a new one in every trip, and ends with it",
        fix="allocate it before the loop",
        location=where if where.frames else buffer.location,
    )


def _unknown(issued: Issued) -> IRError:
    return IRError(
        "ir.instruction",
        f"nisa.{issued.instruction.name} is not the declared instruction of that name",
        rule="IR holds declared instructions",
        fix="declare it with nki.spec.instruction.instruction, once",
        location=issued.location,
    )
