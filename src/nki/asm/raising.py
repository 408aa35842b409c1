"""Streams to the program that they were lowered from; damaged ones are refused."""

from __future__ import annotations

from math import prod
from typing import Any

import nki.collectives
import nki.isa  # noqa: F401 - both declare the instructions
from nki.asm.addresses import check_inside, offset_of, shown
from nki.asm.assemble import AssembledLoop, Node, Tree, assembled
from nki.asm.errors import damaged
from nki.asm.lower import lower
from nki.asm.streams import (
    BODY,
    INPUTS,
    Access,
    BufferEntry,
    Command,
    Group,
    Immediate,
    Indirect,
    Operand,
    Register,
    Streams,
)
from nki.asm.values import value_of
from nki.core.dtypes import BY_NAME
from nki.core.register import VirtualRegister
from nki.core.source import Frame, Location
from nki.core.tensor import Buffer, Dynamic, FreeIndirection, MemoryRegion, ScalarOffset, VectorOffset, View
from nki.spec.engine import engine as Engine
from nki.spec.instruction import REGISTRY, Instruction
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, Wait, WhileLoop
from nki.spec.schedule import check_order

_ROLES = ("input", "temporary", "constant", "fixed", "copy", "spilled")
_REGIONS = {region.value: region for region in MemoryRegion}
_LIMIT = 1 << 48
"""Bound of sizes and strides, far beyond any memory: what is computed from them fits 64 bits."""
_RANK = 16
_LINES = 1 << 24
_FRAMES = 2000
"""Frames of a location, at most: MLIR nests them, and its printer ends the process where a stack ends.

Python's own limit is 1000.
"""
_DEPTH = 4
"""Depth of indices that have an index themselves, at most."""


def raise_(streams: Streams, own: bool = False) -> Program:
    """The program; ``lower(raise_(streams)) == streams``. Buffers and registers are new objects.

    `own` streams are known to come from `lower`, so that this need not be checked.

    Raises:
        ArtifactError: "asm.table", "asm.value", "asm.access", "asm.order", if no program has these streams. Rules of
            instructions are not checked here.
    """
    program = _Raising(streams).run()
    if not own and lower(program) != streams:
        raise damaged(
            "asm.order",
            f"the streams of {streams.name} are not those of a program",
            "queues meet at every loop, and tables hold what is used, in the order of its first use",
        )
    return program


class _Raising:
    """Makes the objects that the tables describe, then the tree of instructions."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._registers: list[VirtualRegister] = []
        self._buffers: list[Buffer] = []
        self._scopes: dict[int, list[Buffer]] = {}
        self._open: set[int] = {INPUTS, BODY}
        self._views: dict[int, View] = {}
        self._immediates: dict[tuple[str, str, int], Any] = {}

    def run(self) -> Program:
        streams = self._streams
        self._tables()
        tree = assembled(streams)
        program = Program(streams.name, streams.target, streams.core, streams.cores)
        program.location = self._location(streams.location)
        program.passed = streams.passed
        program.placement = {
            entry.id: entry.address for entry in streams.buffers if entry.address is not None and not entry.explicit
        }
        program.inputs = self._scopes.get(INPUTS, [])
        program.body = self._block(tree, BODY, streams.scheduled)
        program.outputs = [self._view(access) for access in streams.outputs]
        self._order(program)
        return program

    def _tables(self) -> None:
        streams = self._streams
        self._registers = [VirtualRegister(entry.id, entry.frozen) for entry in streams.registers]
        self._buffers = [self._buffer(entry) for entry in streams.buffers]
        _unique("registers", [entry.id for entry in streams.registers])
        _unique("buffers", [entry.id for entry in streams.buffers])
        for entry, buffer in zip(streams.buffers, self._buffers, strict=True):
            self._scopes.setdefault(entry.scope, []).append(buffer)
        for location in streams.locations:
            if len(location.frames) > _FRAMES or not all(map(_is_place, location.frames)):
                raise damaged(
                    "asm.table",
                    f"location {location} with {len(location.frames)} frames"[:300],
                    f"lines and columns are from 0 to {_LINES}, and there are up to {_FRAMES} frames",
                )
        if not 0 <= streams.core < streams.cores <= 1 << 16:
            raise damaged("asm.table", f"core {streams.core} of {streams.cores}", "cores count from 0")
        if any("," in name or not name for name in streams.passed):
            raise damaged("asm.table", f"passes {streams.passed!r}", "a pass has a name without a comma")

    def _order(self, program: Program) -> None:
        """Edges and fences name instructions, and the order of the program satisfies them."""
        streams, count = self._streams, sum(1 for _ in program.body.walk())
        edges, fences = list(streams.edges), list(streams.fences)
        if not all(0 <= first < count and 0 <= second < count for first, second in edges):
            raise damaged("asm.table", f"edges {edges!r}"[:300], f"they are pairs of positions below {count}")
        if not all(0 <= first < after <= count for first, after in fences):
            raise damaged("asm.table", f"fences {fences!r}"[:300], f"they are ranges of positions up to {count}")
        program.edges, program.fences = edges, fences
        check_order(program)

    def _block(self, nodes: Tree, scope: int, scheduled: bool) -> Block:
        self._open.add(scope)
        block = Block(self._scopes.get(scope, []))
        syncs: list[Sync | None] = []
        for node in nodes:
            block.items.append(self._item(node))
            syncs.append(None if isinstance(node, AssembledLoop) else _sync(node))
        block.sync = syncs if scheduled else None
        if not scheduled and any(syncs):
            raise damaged("asm.order", "a block with instructions has no schedule", "instructions are scheduled")
        if scope != BODY:
            self._open.discard(scope)
        return block

    def _item(self, node: Node) -> Issued | ForLoop | WhileLoop:
        if not isinstance(node, AssembledLoop):
            return self._issued(node.command)
        begin = node.begin
        register, where = self._register(begin.register), self._location(begin.location)
        bounds = [self._bound(bound) for bound in begin.bounds or ()]
        body = self._block(node.body, begin.loop, begin.scheduled)
        if not bounds:
            return WhileLoop(register, body, where)
        if begin.step == 0:
            raise damaged("asm.value", f"step 0 of loop {begin.loop}", "a step is not 0", where)
        return ForLoop(bounds[0], bounds[1], begin.step, register, body, where)

    def _issued(self, command: Command) -> Issued:
        where = self._location(command.location)
        instruction = REGISTRY.get(command.opcode)
        if instruction is None:
            raise damaged("asm.value", f"opcode {command.opcode!r}"[:200], "an opcode names an instruction", where)
        if len(command.operands) != len(instruction.operands):
            raise damaged(
                "asm.value",
                f"{command.opcode} with {len(command.operands)} operands",
                f"it has {len(instruction.operands)}",
                where,
            )
        if command.engine not in Engine.__members__:
            raise damaged("asm.value", f"engine {command.engine!r}"[:200], "it is the name of an engine", where)
        values = []
        for name, operand in zip(instruction.operands, command.operands, strict=True):
            key = (command.opcode, name, id(operand))
            known = self._immediates.get(key, self)
            if known is self:
                known = self._value(operand, instruction, name)
                if type(operand) is Immediate:
                    self._immediates[key] = known
            values.append(known)
        return Issued(instruction, instruction.arguments._make(values), where, Engine[command.engine])

    def _value(self, operand: Operand, instruction: Instruction[Any], name: str) -> Any:
        kind = instruction.operands[name].kind
        match operand:
            case Access() if kind in ("tensor", "column", "tensor_or_number"):
                return self._view(operand)
            case Register() if kind.startswith("register"):
                return self._register(operand)
            case Group(members) if kind in ("tensors", "channels") and members:
                return tuple(self._view(member) for member in members)
            case Access() | Register():
                raise damaged("asm.value", f"{instruction.label}: {name} is {operand!r}"[:300], f"it is of kind {kind}")
        return value_of(operand, instruction, name)

    def _bound(self, bound: int | Register) -> int | VirtualRegister:
        return self._register(bound) if isinstance(bound, Register) else bound

    def _register(self, register: Register) -> VirtualRegister:
        if not 0 <= register.number < len(self._registers):
            raise damaged("asm.table", f"register {register.number}", f"there are {len(self._registers)}")
        return self._registers[register.number]

    def _location(self, number: int) -> Location:
        locations = self._streams.locations
        if not 0 <= number < len(locations):
            raise damaged("asm.table", f"location {number}", f"there are {len(locations)}")
        return locations[number]

    def _buffer(self, entry: BufferEntry) -> Buffer:
        where = self._location(entry.location)
        region, dtype = _REGIONS.get(entry.region), BY_NAME.get(entry.dtype)
        if region is None or dtype is None or entry.role not in _ROLES or (region.on_chip and not entry.shape):
            raise damaged("asm.table", _named(entry), "a buffer has a region, a dtype, a role and a shape", where)
        if (
            len(entry.shape) > _RANK
            or min(entry.shape, default=0) < 0
            or prod(max(size, 1) for size in entry.shape) > _LIMIT
        ):
            raise damaged("asm.table", _named(entry), f"it has {_RANK} dimensions and {_LIMIT} elements at most", where)
        if region.on_chip == (entry.address is None) or (entry.explicit and entry.address is None):
            raise damaged("asm.table", f"{_named(entry)} at {entry.address}", "tensors on chip have an address", where)
        if entry.address is not None and not all(0 <= part < _LIMIT for part in entry.address):
            raise damaged("asm.table", f"{_named(entry)} at {entry.address}", "an address is not negative", where)
        address = entry.address if entry.explicit else None
        buffer = Buffer(
            id=entry.id,
            name=entry.name,
            region=region,
            shape=entry.shape,
            dtype=dtype,
            address=address,
            role=entry.role,
            location=where,
            trace=None,
            data=entry.data,
        )
        if entry.data is not None and len(entry.data) != buffer.nbytes:
            raise damaged(
                "asm.table", f"{_named(entry)} with {len(entry.data)} bytes", f"it has {buffer.nbytes}", where
            )
        return buffer

    def _view(self, access: Operand, depth: int = _DEPTH) -> View:
        if not isinstance(access, Access):
            raise damaged("asm.access", f"{access!r}"[:200], "the members of a list are tensors")
        known = self._views.get(id(access))
        if known is None:
            known = self._views[id(access)] = self._new_view(access, depth)
        if self._streams.buffers[access.buffer].scope not in self._open:
            raise damaged("asm.access", shown(access), "a tensor of a loop is used in the loop")
        return known

    def _new_view(self, access: Access, depth: int) -> View:
        dtype = BY_NAME.get(access.dtype)
        if not 0 <= access.buffer < len(self._buffers) or dtype is None or not depth or len(access.pattern) > _RANK:
            raise damaged("asm.access", shown(access), "an access is of a buffer, with a dtype")
        buffer = self._buffers[access.buffer]
        shape = tuple([count for _, count in access.pattern])
        strides = tuple([stride for stride, _ in access.pattern])
        numbers = (access.partition, access.byte, *shape, *strides)
        if min(numbers) < -_LIMIT or max(numbers) > _LIMIT or min(shape, default=0) < 0:
            raise damaged("asm.access", shown(access), f"counts are not negative, numbers are below {_LIMIT}")
        dynamic = None if access.indirect is None else self._dynamic(access.indirect, depth)
        view = View(buffer, dtype, shape, strides, 0, dynamic)
        offset = offset_of(view, access, self._streams.buffers[access.buffer].address)
        view = View(buffer, dtype, shape, strides, offset, dynamic)
        check_inside(view, access)
        return view

    def _dynamic(self, indirect: Indirect, depth: int) -> Dynamic:
        if not -_LIMIT <= indirect.scale <= _LIMIT:
            raise damaged("asm.access", f"scale {indirect.scale}", f"it is below {_LIMIT}")
        if isinstance(indirect.index, Register):
            if indirect.kind != "scalar_offset":
                raise damaged("asm.access", f"{indirect.kind} by a register", "only scalar_offset takes a register")
            return ScalarOffset(self._register(indirect.index), indirect.scale)
        index = self._view(indirect.index, depth - 1)
        match indirect.kind:
            case "scalar_offset":
                return ScalarOffset(index, indirect.scale)
            case "vector_offset":
                return VectorOffset(index, indirect.scale)
            case "free_indirection":
                return FreeIndirection(index, indirect.scale)
        raise damaged("asm.access", f"indirection {indirect.kind!r}"[:200], "it is one of three kinds")


def _is_place(frame: Frame) -> bool:
    places = (frame.line, frame.column, frame.end_line, frame.end_column)
    return min(places) >= 0 and max(places) <= _LINES


def _sync(node: Any) -> Sync:
    command = node.command
    return Sync(node.queue, tuple(Wait(wait.queue, wait.count) for wait in command.waits), command.signals)


def _unique(what: str, numbers: list[int]) -> None:
    if len(set(numbers)) != len(numbers):
        raise damaged("asm.table", f"two {what} have one number", f"{what} have different numbers")


def _named(entry: BufferEntry) -> str:
    return f"buffer {entry.name!r} {entry.role} {entry.dtype}{list(entry.shape)} in {entry.region}"[:300]
