"""Where the operands of a record lie: addresses of partitions, rows that are gathered and scattered, scratch rows."""

from __future__ import annotations

from collections.abc import Sequence

from nki.native.emit.code import Code
from nki.native.operand_layout import BASES, HEADER, SLOT, STREAMED, UNIT
from nki.native.trace.symbolic_execution import Trace

SCRATCH = 8 << 18
"""Bytes of scratch memory that a kernel may use."""

LINE = 64
"""Bytes of a cache line."""
_GATHER, _SCATTER = 2, 5
_HELPER = {1: 0, 2: 1, 4: 2}
_REGISTER_BYTES = 4


class AddressEmitter:
    """Addresses of the slots of one record, as values of the function that is being written."""

    def __init__(self, code: Code, trace: Trace, slots: Sequence[int]) -> None:
        self.code = code
        self.trace = trace
        self._places: dict[int, tuple[str, str]] = {}
        self._units: dict[int, str] = {}
        self._streamed: dict[int, str] = {}
        self._contexts: dict[int, str] = {}
        for slot in slots:
            self._places[slot] = self._place(slot)
            if trace.slots[slot].row:
                self._context(self._helper(slot))
        self.immediates = [
            code.word("%words", HEADER + SLOT * len(trace.slots) + i) for i in range(len(trace.immediates))
        ]

    def _place(self, slot: int) -> tuple[str, str]:
        """Address of the first partition, and the distance of partitions."""
        code, first = self.code, HEADER + SLOT * slot
        base = code.word("%words", first)
        entry = code.let(f"llvm.getelementptr %ctx[{base}] : (!llvm.ptr, i64) -> !llvm.ptr, i64")
        address = code.add(code.word(entry, BASES), code.word("%words", first + 1))
        if self.trace.slots[slot].row:
            unit = code.word("%words", first + UNIT)
            self._units[slot] = code.compare("ne", unit, code.number(0), "i64", 0)
            if self.trace.slots[slot].mode == "write":
                self._streamed[slot] = code.compare("eq", unit, code.number(STREAMED), "i64", 0)
        return address, code.word("%words", first + 2)

    def _context(self, index: int) -> str:
        """A word of the context, as a pointer; it is read before all loops."""
        if index not in self._contexts:
            self._contexts[index] = self.code.pointer(self.code.word("%ctx", index))
        return self._contexts[index]

    def all_dense(self) -> str:
        """Whether the elements of all rows lie side by side, so that none is gathered or scattered."""
        result = self.code.constant(1, "i1", 0)
        for unit in self._units.values():
            result = self.code.binary("arith.andi", result, unit, "i1", 0)
        return result

    def _helper(self, slot: int) -> int:
        item = self.trace.slots[slot]
        return (_GATHER if item.mode == "read" else _SCATTER) + _HELPER[item.dtype.itemsize]

    def address(self, slot: int, partition: str) -> str:
        """Pointer to the first element of a partition."""
        address, stride = self._places[slot]
        return self.code.pointer(self.code.add(address, self.code.multiply(partition, stride)))

    def _dims(self, slot: int) -> str:
        index = HEADER + SLOT * slot + 4
        return self.code.let(f"llvm.getelementptr %words[{index}] : (!llvm.ptr) -> !llvm.ptr, i64")

    def readable_row(self, slot: int, partition: str, scratch: str) -> str:
        """Pointer to the elements of a partition side by side, which are gathered if they do not lie so."""
        code, there = self.code, self.address(slot, partition)
        result = code.name()
        with code.block(f"{result} = scf.if {self._units[slot]} -> (!llvm.ptr) {{"):
            code.do(f"scf.yield {there} : !llvm.ptr")
            code.otherwise()
            self._call(slot, scratch, there)
            code.do(f"scf.yield {scratch} : !llvm.ptr")
        return result

    def writable_row(self, slot: int, partition: str, scratch: str) -> str:
        """Pointer to which the elements of a partition are written side by side; see `scatter`."""
        there = self.address(slot, partition)
        return self.code.let(f"llvm.select {self._units[slot]}, {there}, {scratch} : i1, !llvm.ptr")

    def streams(self, slot: int, row: str) -> str:
        """i1: whether vectors are written past the caches from this pointer on, which is the beginning of a line."""
        code = self.code
        address = code.let(f"llvm.ptrtoint {row} : !llvm.ptr to i64")
        within = code.binary("arith.andi", address, code.number(LINE - 1), "i64", 0)
        begins = code.compare("eq", within, code.number(0), "i64", 0)
        return code.binary("arith.andi", self._streamed[slot], begins, "i1", 0)

    def scatter(self, slot: int, partition: str, scratch: str) -> None:
        """Put what was written into the scratch row where it belongs."""
        code = self.code
        strided = code.binary("arith.xori", self._units[slot], code.constant(1, "i1", 0), "i1", 0)
        with code.block(f"scf.if {strided} {{"):
            self._call(slot, self.address(slot, partition), scratch)

    def _call(self, slot: int, destination: str, source: str) -> None:
        helper, dims = self._context(self._helper(slot)), self._dims(slot)
        types = "!llvm.ptr, !llvm.ptr, !llvm.ptr"
        self.code.do(f"llvm.call {helper}({destination}, {source}, {dims}) : !llvm.ptr, ({types}) -> ()")

    # --- single elements

    def load(self, slot: int, partition: str, kind: str) -> str:
        """The bits of the element of a partition."""
        size = self.trace.slots[slot].dtype.itemsize
        pointer = self.address(slot, partition)
        return self.code.let(f"llvm.load {pointer} {{alignment = {size} : i64}} : !llvm.ptr -> {kind}")

    def store(self, slot: int, partition: str, value: str, kind: str) -> None:
        """Set the bits of the element of a partition."""
        size = self.trace.slots[slot].dtype.itemsize
        pointer = self.address(slot, partition)
        self.code.do(f"llvm.store {value}, {pointer} {{alignment = {size} : i64}} : {kind}, !llvm.ptr")

    def fill_registers(self, slot: int, bits: int, count: int) -> None:
        """Set all registers of an engine."""
        pointer = self.address(slot, self.code.number(0))
        value = self.code.constant(bits, "i32", 16)
        for first in range(0, count, 16):
            there = self.code.at(pointer, self.code.number(first * _REGISTER_BYTES))
            self.code.do(f"llvm.store {value}, {there} {{alignment = 4 : i64}} : vector<16xi32>, !llvm.ptr")
