"""The loops over the elements of a partition, 16 at a time, with masks for what is left at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki.native.emit.bfloat16_pairs import are_paired, packed, unpacked
from nki.native.emit.code import LANES, Code, bytes_of, type_of
from nki.native.emit.loops import ElementLoop
from nki.native.emit.ops import combined, operation
from nki.native.emit.values import EmittedValues
from nki.native.trace.expression import F32, I32, MASK, ROW, Node

_INITIAL = {
    "add": (0, F32),
    "multiply": (0x3F80_0000, F32),
    "maximum": (0xFF80_0000, F32),
    "minimum": (0x7F80_0000, F32),
}


PAIR = 2
"""Vectors of one partition that are treated at once where rows are read in pairs."""
_FEW_NODES = 16
"""Operations for each vector beside which writing past the caches shows."""


@dataclass(slots=True)
class Partition:
    """One of the partitions that are treated at once.

    Attributes:
        index: its number.
        values: its columns.
        reads, writes: pointers to rows by slot.
        streams: whether a written slot is written past the caches.
        scratch: the scratch row behind each written slot.
        kept: pointers to rows in scratch memory, by node.
        final: last states of recurrences, by node.
    """

    index: str
    values: EmittedValues
    reads: dict[int, str] = field(default_factory=dict)
    writes: dict[int, str] = field(default_factory=dict)
    streams: dict[int, str] = field(default_factory=dict)
    scratch: dict[int, str] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)
    final: dict[int, str] = field(default_factory=dict)


def row_loop(code: Code, loop: ElementLoop, partitions: Sequence[Partition], count: str, unroll: int) -> None:
    """Emit a loop for several partitions in step; their reductions become columns."""
    if len(partitions) == 1 and are_paired(loop):
        unroll = PAIR
    for partition in partitions:
        _repeat_columns(loop, partition)
    accumulators = [_initial(code, node) for node in loop.reductions] * len(partitions)
    stride = LANES * unroll
    whole = code.binary("arith.andi", count, code.number(-stride), "i64", 0)
    if _may_stream(loop, partitions):
        _either_way(code, loop, partitions, unroll, whole)
    else:
        chunks = _Chunks(code, loop, partitions, unroll)
        accumulators = chunks.loop(code.number(0), whole, stride, accumulators, None)
    accumulators = _Chunks(code, loop, partitions, 1).loop(whole, count, LANES, accumulators, count)
    for i, partition in enumerate(partitions):
        for j, node in enumerate(loop.reductions):
            partition.values.names[node.number] = _meet(code, node, accumulators[i * len(loop.reductions) + j])


def _may_stream(loop: ElementLoop, partitions: Sequence[Partition]) -> bool:
    """Whether a loop is worth being there twice: one that waits for memory most of the time."""
    waits = len(loop.nodes) <= _FEW_NODES and not loop.reductions and not loop.spills
    return waits and bool(loop.stores) and all(s.slot in p.streams for s in loop.stores for p in partitions)


def _either_way(code: Code, loop: ElementLoop, partitions: Sequence[Partition], unroll: int, whole: str) -> None:
    """The loop over whole vectors, past the caches where that is asked for."""
    streams = code.constant(1, "i1", 0)
    for slot in sorted({store.slot for store in loop.stores}):
        for partition in partitions:
            streams = code.binary("arith.andi", streams, partition.streams[slot], "i1", 0)
    with code.block(f"scf.if {streams} {{"):
        _Chunks(code, loop, partitions, unroll, streamed=True).loop(code.number(0), whole, LANES * unroll, [], None)
        code.otherwise()
        _Chunks(code, loop, partitions, unroll).loop(code.number(0), whole, LANES * unroll, [], None)


def _repeat_columns(loop: ElementLoop, partition: Partition) -> None:
    needed = [a for node in loop.nodes if node not in loop.reloads for a in node.arguments]
    for node in needed + [store.value for store in loop.stores]:
        if node.rank != ROW:
            partition.values.repeat(node)


def _initial(code: Code, node: Node) -> str:
    operator = str(node.attribute)
    if node.type == F32:
        return code.constant(*_INITIAL[operator], LANES)
    return code.constant(-1 if operator.endswith("and") else 0, node.type, LANES)


def _meet(code: Code, node: Node, lanes: str) -> str:
    """The lanes of an accumulator in a tree; bits meet in any order."""
    operator, kind = str(node.attribute), node.type
    if kind != F32:
        name = operator.rpartition("_")[2]
        return code.let(f"vector.reduction <{name}>, {lanes} : {type_of(kind, LANES)} into {kind}")
    width = LANES
    while width > 1:
        half = width // 2
        parts = [
            code.let(
                f"vector.extract_strided_slice {lanes} {{offsets = [{start}], sizes = [{half}], strides = [1]}} : "
                f"{type_of(kind, width)} to {type_of(kind, half)}"
            )
            for start in (0, half)
        ]
        lanes, width = combined(code, operator, parts[0], parts[1], kind, half), half
    return code.let(f"vector.extract {lanes}[0] : {kind} from {type_of(kind, 1)}")


class _Chunks:
    """The body of a loop: some vectors of some partitions."""

    def __init__(
        self, code: Code, loop: ElementLoop, partitions: Sequence[Partition], unroll: int, streamed: bool = False
    ) -> None:
        self.code = code
        self.work = loop
        self.partitions = partitions
        self.unroll = unroll
        self.streamed = streamed
        self._reloads = {node.number for node in loop.reloads}
        self._paired = unroll == PAIR and len(partitions) == 1 and are_paired(loop)

    def loop(self, start: str, end: str, step: int, accumulators: list[str], count: str | None) -> list[str]:
        """Emit it; with a count, its last elements are masked. Returns the accumulators behind it."""
        code, index = self.code, code_index(self.code)
        head = f"scf.for {index} = {start} to {end} step {code.number(step)}"
        if not accumulators:
            with code.block(f"{head} : i64 {{"):
                self._body(index, [], count)
            return []
        inner = [code.name() for _ in accumulators]
        types = [type_of(node.type, LANES) for node in self.work.reductions] * len(self.partitions)
        pairs = ", ".join([f"{name} = {value}" for name, value in zip(inner, accumulators, strict=True)])
        result = code.name()
        several = f":{len(inner)}" if len(inner) > 1 else ""
        with code.block(f"{result}{several} = {head} iter_args({pairs}) -> ({', '.join(types)}) : i64 {{"):
            final = self._body(index, inner, count)
            code.do(f"scf.yield {', '.join(final)} : {', '.join(types)}")
        return [f"{result}#{i}" for i in range(len(inner))] if several else [result]

    def _body(self, index: str, accumulators: list[str], count: str | None) -> list[str]:
        mask = None if count is None else self._mask(index, count)
        chunks = [(partition, u) for partition in self.partitions for u in range(self.unroll)]
        places = [index if u == 0 else self.code.add(index, self.code.number(u * LANES)) for u in range(self.unroll)]
        known: list[dict[int, str]] = [{} for _ in chunks]
        if self._paired:
            self._load_pairs(self.partitions[0], index, known)
        else:
            for (partition, u), values in zip(chunks, known, strict=True):
                self._load(partition, places[u], values, mask)
        for (partition, u), values in zip(chunks, known, strict=True):
            self._compute(partition, places[u], values)
        result = list(accumulators)
        for c, ((partition, _), values) in enumerate(zip(chunks, known, strict=True)):
            self._reduce(result, c // self.unroll, partition, values, mask)
        if self._paired:
            self._store_pairs(self.partitions[0], index, known)
            return result
        for (partition, u), values in zip(chunks, known, strict=True):
            self._store(partition, places[u], values, mask)
        return result

    def _load_pairs(self, partition: Partition, index: str, known: Sequence[dict[int, str]]) -> None:
        loaded: dict[int, tuple[str, str]] = {}
        for node in self.work.nodes:
            if node.op == "load":
                there = self._element(partition.reads[node.whole], index, "i16")
                pair = self.code.let(f"llvm.load {there} {{alignment = 2 : i64}} : !llvm.ptr -> {type_of(I32, LANES)}")
                loaded[node.number] = unpacked(self.code, pair)
            elif node.op == "decode":
                for values, half in zip(known, loaded[node.arguments[0].number], strict=True):
                    values[node.number] = half

    def _store_pairs(self, partition: Partition, index: str, known: Sequence[dict[int, str]]) -> None:
        for store in self.work.stores:
            argument = store.value.arguments[0]
            halves = [values[argument.number] for values in known]
            pair = packed(self.code, halves[0], halves[1])
            there = self._element(partition.writes[store.slot], index, "i16")
            self._put(pair, I32, there, 2)

    def _mask(self, index: str, count: str) -> str:
        code = self.code
        left = code.binary("arith.subi", count, index, "i64", 0)
        left = code.splat(code.cast("arith.trunci", left, "i64", "i32", 0), "i32", LANES)
        return code.compare("slt", lane_numbers(code), left, "i32", LANES)

    def _load(self, partition: Partition, place: str, values: dict[int, str], mask: str | None) -> None:
        for node in self.work.nodes:
            if node.number in self._reloads:
                values[node.number] = self._read(partition.kept[node.number], place, node.type, 4, mask)
            elif node.op == "load":
                assert node.dtype is not None, "loads are storage values"
                pointer = partition.reads[node.whole]
                values[node.number] = self._read(pointer, place, node.type, node.dtype.itemsize, mask)

    def _compute(self, partition: Partition, place: str, values: dict[int, str]) -> None:
        for node in self.work.nodes:
            if node.op == "position":
                values[node.number] = self._position(place)
            elif node.number not in values and not (self._paired and node.op in ("load", "encode")):
                arguments = [values[a.number] if a.rank == ROW else partition.values.vector(a) for a in node.arguments]
                values[node.number] = operation(self.code, node, arguments, LANES)

    def _position(self, place: str) -> str:
        """The numbers of the elements."""
        code = self.code
        first = code.splat(code.cast("arith.trunci", place, "i64", "i32", 0), "i32", LANES)
        return code.binary("arith.addi", first, lane_numbers(code), "i32", LANES)

    def _reduce(
        self, accumulators: list[str], copy: int, partition: Partition, values: dict[int, str], mask: str | None
    ) -> None:
        for i, node in enumerate(self.work.reductions):
            at = copy * len(self.work.reductions) + i
            old = accumulators[at]
            new = combined(self.code, str(node.attribute), old, values[node.arguments[0].number], node.type, LANES)
            accumulators[at] = new if mask is None else self.code.select(mask, new, old, node.type, LANES)

    def _store(self, partition: Partition, place: str, values: dict[int, str], mask: str | None) -> None:
        for node in self.work.spills:
            self._write(partition.kept[node.number], place, values[node.number], node.type, 4, mask)
        for store in self.work.stores:
            node = store.value
            assert node.dtype is not None, "stores take storage values"
            value = values[node.number] if node.rank == ROW else partition.values.vector(node)
            self._write(partition.writes[store.slot], place, value, node.type, node.dtype.itemsize, mask)

    def _element(self, pointer: str, place: str, kind: str) -> str:
        return self.code.let(f"llvm.getelementptr {pointer}[{place}] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}")

    def _read(self, pointer: str, place: str, kind: str, size: int, mask: str | None) -> str:
        code, typed = self.code, type_of(kind, LANES)
        there = self._element(pointer, place, kind)
        if mask is None:
            return code.let(f"llvm.load {there} {{alignment = {size} : i64}} : !llvm.ptr -> {typed}")
        zero = code.constant(0, kind, LANES)
        types = f"(!llvm.ptr, {type_of(MASK, LANES)}, {typed}) -> {typed}"
        return code.let(f"llvm.intr.masked.load {there}, {mask}, {zero} {{alignment = {size} : i32}} : {types}")

    def _write(self, pointer: str, place: str, value: str, kind: str, size: int, mask: str | None) -> None:
        code, typed = self.code, type_of(kind, LANES)
        there = self._element(pointer, place, kind)
        if mask is None:
            self._put(value, kind, there, size)
        else:
            types = f"{typed}, {type_of(MASK, LANES)} into !llvm.ptr"
            code.do(f"llvm.intr.masked.store {value}, {there}, {mask} {{alignment = {size} : i32}} : {types}")

    def _put(self, value: str, kind: str, pointer: str, size: int) -> None:
        """Store a vector of values of a kind, at elements of so many bytes."""
        aligned = f"alignment = {bytes_of(kind) * LANES} : i64, nontemporal" if self.streamed else ""
        attributes = aligned or f"alignment = {size} : i64"
        self.code.do(f"llvm.store {value}, {pointer} {{{attributes}}} : {type_of(kind, LANES)}, !llvm.ptr")


def code_index(code: Code) -> str:
    """A name for a loop's counter."""
    return code.name()


def lane_numbers(code: Code) -> str:
    """0 to 15."""
    return code.let(f"arith.constant dense<[{', '.join(map(str, range(LANES)))}]> : vector<{LANES}xi32>")
