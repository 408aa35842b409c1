"""MLIR to programs: the inverse of `build`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from nki.core.errors import IRError
from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.core.tensor import Buffer, View
from nki.ir.attributes import Attributes, refused
from nki.ir.build import VERSION
from nki.ir.context import session
from nki.ir.mlir import Block as MlirBlock
from nki.ir.mlir import Module, Operation
from nki.ir.nisa import ENGINE, QUEUE, SEGMENTS, OpSpec
from nki.ir.tables import Meaning, Tables
from nki.ir.values import flag, integer, integers, text
from nki.ir.views import DYNAMIC, check_bounds
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop
from nki.spec.schedule import check_order

ROLES = ("input", "temporary", "constant", "fixed", "copy", "spilled")


def read(module: Module) -> list[Program]:
    """The programs of a module, in order; ``read(build(programs))`` equals ``programs``.

    Buffers and registers are new objects, which belong to no trace.

    Raises:
        IRError: if the module is not what `build` writes: "ir.version", "ir.operation", "ir.attribute", "ir.value",
            "ir.type", "ir.view", "ir.structure", "ir.duplicate". Rules of instructions are not checked here.
    """
    with session(module.context):
        tables = Tables()
        attributes = Attributes(module.operation, tables.locations.read(module.operation.location))
        version = integer(attributes["nki.version"]) if "nki.version" in attributes else None
        if version != VERSION:
            raise IRError(
                "ir.version",
                f"the module has version {version}",
                rule=f"this toolchain reads version {VERSION} of its dialects",
                fix="compile the kernel again",
                location=attributes.where,
            )
        return [_KernelReader(operation, tables).read() for operation in module.body]


class _KernelReader:
    """Reads one kernel."""

    def __init__(self, operation: Operation, tables: Tables) -> None:
        self._operation = operation
        self._tables = tables
        self._meaning = Meaning()
        self._buffers: set[int] = set()
        self._registers: set[int] = set()
        self._sync: Sync | None = None
        self._program: Program
        self._readers: dict[str, Callable[[Operation, Attributes, Block], None]] = {
            "nki.input": self._input,
            "nki.alloc": self._alloc,
            "nki.reg": self._register,
            "nki.subview": self._view,
            "nki.list_item": self._item,
            "nki.for": self._for,
            "nki.while": self._while,
            "nki.yield": self._yield,
            "nki.return": self._return,
        }

    def read(self) -> Program:
        operation = self._operation
        where = self._tables.locations.read(operation.location)
        if operation.name != "nki.kernel":
            raise refused("ir.operation", f"operation {operation.name}", "a module holds nki.kernel", where)
        a = Attributes(operation, where)
        core, cores = integer(a["core"]), integer(a["cores"])
        self._program = Program(text(a["name"]), text(a["target"]), core, cores, location=where)
        flat = integers(a["edges"]) if "edges" in a else ()
        self._program.edges = list(zip(flat[::2], flat[1::2], strict=False))
        fences = integers(a["fences"]) if "fences" in a else ()
        self._program.fences = list(zip(fences[::2], fences[1::2], strict=False))
        if "passes" in a:
            self._program.passed = tuple(text(a["passes"]).split(","))
        if "allocated" in a and flag(a["allocated"]):
            self._program.placement = {}
        a.check_all_used()
        self._block(_only_block(operation, where), self._program.body)
        self._check_edges(flat, fences, where)
        return self._program

    def _check_edges(self, flat: tuple[int, ...], fences: tuple[int, ...], where: Location) -> None:
        if not flat and not fences:
            return
        count = sum(1 for _ in self._program.body.walk())
        if len(flat) % 2 or not all(0 <= position < count for position in flat):
            raise refused("ir.value", f"edges {list(flat)}", f"they are pairs of positions below {count}", where)
        if len(fences) % 2 or not all(0 <= first < after <= count for first, after in self._program.fences):
            raise refused("ir.value", f"fences {list(fences)}", f"they are ranges of positions up to {count}", where)
        check_order(self._program)

    def _block(self, mlir_block: MlirBlock, block: Block) -> None:
        specs, readers, read_location = self._tables.specs, self._readers, self._tables.locations.read
        block_syncs: list[Sync | None] = []
        for operation in mlir_block:
            name = operation.name
            where = read_location(operation.location)
            spec = specs.get(name)
            try:
                if spec is not None:
                    block.items.append(self._instruction(operation, spec, where))
                    block_syncs.append(self._sync)
                    continue
                reader = readers.get(name)
                if reader is None:
                    raise refused("ir.operation", f"operation {name}", "a kernel holds nki and nisa operations", where)
                attributes = Attributes(operation, where)
                reader(operation, attributes, block)
                attributes.check_all_used()
                if len(block.items) > len(block_syncs):
                    block_syncs.append(None)
            except IRError as error:
                if not error.location.frames:
                    error.location = where
                raise
        block.sync = self._syncs_of(block, block_syncs)

    def _syncs_of(self, block: Block, syncs: list[Sync | None]) -> list[Sync | None] | None:
        """None for a block that is not scheduled; either all instructions of a block are, or none."""
        missing = [
            item for item, sync in zip(block.items, syncs, strict=True) if isinstance(item, Issued) and sync is None
        ]
        if missing and len(missing) < sum(isinstance(item, Issued) for item in block.items):
            raise refused(
                "ir.attribute",
                f"no {QUEUE}",
                "all instructions of a block have a queue, or none has",
                missing[0].location,
            )
        return None if missing or not any(syncs) else syncs

    def _instruction(self, operation: Operation, spec: OpSpec, where: Location) -> Issued:
        """The operands stand in the order of the signature; what is not among them is an attribute or None."""
        meaning = self._meaning
        operands = [meaning[value] for value in operation.operands]
        attributes = operation.attributes
        get = attributes.get
        sizes = spec.sizes or _sizes(spec, len(operands), attributes)
        self._sync, own = self._tables.sync(attributes, where) if QUEUE in attributes else (None, 0)
        unused = len(attributes) - spec.segmented - 1 - own
        values = []
        group = position = 0
        for argument in self._tables.arguments[spec.name]:
            size = 0
            if not argument.is_attribute:
                size = sizes[group]
                group += 1
            if argument.many:
                values.append(tuple(operands[position : position + size]))
            elif size:
                values.append(operands[position])
            elif (attribute := get(argument.name)) is not None:
                values.append(argument.read(attribute))
                unused -= 1
            else:
                values.append(argument.absent())
            position += size
        if unused:
            names = ", ".join(attributes.keys())
            raise refused("ir.attribute", f"attributes {names}", f"nisa.{spec.instruction.name} lacks some", where)
        engine = self._tables.engine(attributes[ENGINE])
        return Issued(spec.instruction, spec.instruction.arguments._make(values), where, engine)

    def _input(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        self._program.inputs.append(self._buffer(operation, attributes))

    def _alloc(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        block.buffers.append(self._buffer(operation, attributes))

    def _buffer(self, operation: Operation, attributes: Attributes) -> Buffer:
        result, where = operation.results[0], attributes.where
        shape, dtype, region = self._tables.shaped(result.type)
        number, role = integer(attributes["id"]), text(attributes["role"])
        address = _address(attributes, "address")
        placement = _address(attributes, "placement")
        if number in self._buffers:
            raise refused("ir.duplicate", f"two buffers have id {number}", "ids of buffers are unique", where)
        if role not in ROLES:
            raise refused("ir.value", f"role {role!r}", f"a role is {', '.join(ROLES)}", where)
        if region.on_chip and not shape:
            raise refused("ir.type", f"a buffer without dimensions in {region}", "dimension 0 is the partition", where)
        self._buffers.add(number)
        if placement is not None:
            if self._program.placement is None or address is not None or not region.on_chip:
                raise refused(
                    "ir.value",
                    f"placement {placement} of {region}",
                    "an allocated kernel places on-chip tensors that have no address",
                    where,
                )
            self._program.placement[number] = placement
        data = _data(attributes)
        buffer = Buffer(
            id=number,
            name=text(attributes["name"]),
            region=region,
            shape=shape,
            dtype=dtype,
            address=address,
            role=role,
            location=where,
            trace=None,
            data=data,
        )
        if data is not None and len(data) != buffer.nbytes:
            raise refused("ir.value", f"{len(data)} bytes of data", f"the buffer holds {buffer.nbytes} bytes", where)
        self._meaning[result] = buffer
        return buffer

    def _register(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        number = integer(attributes["id"])
        if number in self._registers:
            raise refused(
                "ir.duplicate", f"two registers have id {number}", "ids of registers are unique", attributes.where
            )
        self._registers.add(number)
        self._meaning[operation.results[0]] = VirtualRegister(number, flag(attributes["frozen"]))

    def _view(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        operands = [self._meaning[value] for value in operation.operands]
        buffer = operands[0]
        result, where = operation.results[0], attributes.where
        shape, dtype, region = self._tables.shaped(result.type)
        strides, offset = self._tables.strides(attributes["strides"]), integer(attributes["offset"])
        static = len(operands) == 1 and attributes.count == 2
        dynamic = None if static else _dynamic(operands[1:], attributes)
        view = View(buffer, dtype, shape, strides, offset, dynamic)
        if region is not buffer.region or len(strides) != len(shape):
            raise refused(
                "ir.view",
                f"{len(strides)} strides for {dtype}{list(shape)} in {region} of {buffer!r}",
                "a view has the region of its buffer, and one stride for each dimension",
                where,
            )
        check_bounds(view, where)
        self._meaning[result] = view

    def _item(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        self._meaning[operation.results[0]] = self._meaning[operation.operands[0]]

    def _for(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        index, *bounds = [self._meaning[value] for value in operation.operands]
        _, has_lower, has_upper = attributes[SEGMENTS]
        lower = bounds.pop(0) if has_lower else integer(attributes["lower"])
        upper = bounds.pop(0) if has_upper else integer(attributes["upper"])
        step = integer(attributes["step"])
        if step == 0:
            raise refused("ir.value", "step 0 of a loop", "a step is not 0", attributes.where)
        self._loop(operation, ForLoop(lower, upper, step, index, Block(), attributes.where), block)

    def _while(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        condition = self._meaning[operation.operands[0]]
        self._loop(operation, WhileLoop(condition, Block(), attributes.where), block)

    def _loop(self, operation: Operation, loop: ForLoop | WhileLoop, block: Block) -> None:
        block.items.append(loop)
        self._block(_only_block(operation, loop.location), loop.body)

    def _yield(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        if block is self._program.body:
            raise refused("ir.structure", "nki.yield ends a kernel", "a kernel ends with nki.return", attributes.where)

    def _return(self, operation: Operation, attributes: Attributes, block: Block) -> None:
        if block is not self._program.body:
            raise refused("ir.structure", "nki.return in a loop", "a loop ends with nki.yield", attributes.where)
        self._program.outputs.extend(self._meaning[value] for value in operation.operands)


def _only_block(operation: Operation, where: Location) -> MlirBlock:
    blocks = list(operation.regions[0].blocks)
    if len(blocks) != 1 or len(blocks[0].arguments):
        raise refused(
            "ir.structure", f"{operation.name} has {len(blocks)} blocks", "a body is one block without arguments", where
        )
    return blocks[0]


def _sizes(spec: OpSpec, count: int, attributes: Any) -> list[int]:
    """How many operands each field has; MLIR's verifier checks that the sizes add up."""
    if spec.segmented:
        return list(attributes[SEGMENTS])
    spare = count - len(spec.operand_fields) + 1
    return [spare if field.flexible else 1 for field in spec.operand_fields]


def _data(attributes: Attributes) -> bytes | None:
    if "data" not in attributes:
        return None
    try:
        return base64.b64decode(text(attributes["data"]), validate=True)
    except ValueError:
        raise refused("ir.value", "data that is not base64", "data is base64 text", attributes.where) from None


def _address(attributes: Attributes, name: str) -> tuple[int, int] | None:
    if name not in attributes:
        return None
    address = integers(attributes[name])
    if len(address) != 2 or min(address) < 0:
        raise refused("ir.value", f"{name} {address}", "it is (partition, byte)", attributes.where)
    return address[0], address[1]


def _dynamic(index: list[Any], attributes: Attributes) -> Any:
    """The dynamic part of a view that has one."""
    given = [name for name in ("dynamic", "scale") if name in attributes]
    kind = DYNAMIC.get(text(attributes["dynamic"])) if index and len(given) == 2 else None
    if kind is None or (isinstance(index[0], VirtualRegister) and kind is not DYNAMIC["scalar_offset"]):
        raise refused(
            "ir.view",
            f"a dynamic view with {len(index)} indices and attributes {', '.join(given) or 'none'}",
            f"it has an index, a scale, and dynamic is {', '.join(DYNAMIC)}; only scalar_offset takes a register",
            attributes.where,
        )
    return kind(index[0], integer(attributes["scale"]))
