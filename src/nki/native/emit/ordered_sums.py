"""Sums in order: one sum for each partition, to which its elements are added one after the other.

A vector has the sums of as many partitions as it has lanes. What lies side by side in a row is read as words; squares
of words, one row of each partition, are transposed, and so a vector has the same elements of all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nki.native.emit.code import LANES, Code, type_of
from nki.native.emit.loops import ElementLoop
from nki.native.emit.ops import operation
from nki.native.emit.rows import Partition
from nki.native.primitives.transpose import square, transposed
from nki.native.trace.expression import F32, I32, MASK, ROW, Node

_WORD = 4
"""Bytes of what is transposed."""
_FLOATS, _WORDS = type_of(F32, LANES), type_of(I32, LANES)


def sums_in_order(code: Code, loop: ElementLoop, partitions: Sequence[Partition], count: str) -> None:
    """Emit the loop of a sum for as many partitions as a vector has lanes; the sums become columns."""
    (node,) = loop.reductions
    sums = _Sums(code, loop, partitions)
    whole = code.binary("arith.andi", count, code.number(-sums.step), "i64", 0)
    total = sums.loop(code.number(0), whole, code.constant(0, F32, LANES), None)
    total = sums.loop(whole, count, total, count)
    for lane, partition in enumerate(partitions):
        partition.values.names[node.number] = code.let(f"vector.extract {total}[{lane}] : {F32} from {_FLOATS}")


class _Sums:
    """The body of the loop.

    Attributes:
        step: elements of a row that are read at once.
    """

    def __init__(self, code: Code, loop: ElementLoop, partitions: Sequence[Partition]) -> None:
        self._code = code
        self._partitions = partitions
        (self._load,) = [node for node in loop.nodes if node.op == "load"]
        self._nodes = [node for node in loop.nodes if node.op != "load"]
        assert all(a.rank == ROW or a.op == "constant" for node in self._nodes for a in node.arguments), "one row alone"
        self._value: Node = loop.reductions[0].arguments[0]
        assert self._load.dtype is not None, "loads are storage values"
        self._size = self._load.dtype.itemsize
        self.step = LANES * _WORD // self._size

    def loop(self, start: str, end: str, total: str, count: str | None) -> str:
        """The sums behind a loop; with a count, what lies behind it is neither read nor added."""
        code, result = self._code, self._code.name()
        with code.accumulated(start, end, self.step, _FLOATS, total, result) as (index, before, put):
            first = code.multiply(index, code.number(self._size))
            rows = [code.at(partition.reads[self._load.whole], first) for partition in self._partitions]
            words = self._whole(rows) if count is None else self._part(rows, index, count)
            for number, elements in enumerate(self._elements(words)):
                after = code.binary("arith.addf", before, elements, F32, LANES)
                if count is not None:
                    there = code.compare("slt", code.add(index, code.number(number)), count, "i64", 0)
                    after = code.let(f"arith.select {there}, {after}, {before} : {_FLOATS}")
                before = after
            put(before)
        return result

    def _whole(self, rows: Sequence[str]) -> Iterable[str]:
        code = self._code

        def piece(kind: str, row: int, column: int) -> str:
            place = code.at(rows[row], code.number(_WORD * column))
            return code.let(f"llvm.load {place} {{alignment = {self._size} : i64}} : !llvm.ptr -> {kind}")

        return square(code.let, piece, _WORD)

    def _part(self, rows: Sequence[str], index: str, count: str) -> Iterable[str]:
        """Words of the elements before the end."""
        code, raw, bits = self._code, type_of(self._load.type, self.step), type_of(MASK, self.step)
        left = code.cast("arith.trunci", code.binary("arith.subi", count, index, "i64", 0), "i64", I32, 0)
        numbers = code.let(f"arith.constant dense<{list(range(self.step))}> : {type_of(I32, self.step)}")
        mask = code.compare("slt", numbers, code.splat(left, I32, self.step), I32, self.step)
        zero = code.constant(0, self._load.type, self.step)
        loaded = []
        for row in rows:
            given = f"{row}, {mask}, {zero} {{alignment = {self._size} : i32}}"
            found = code.let(f"llvm.intr.masked.load {given} : (!llvm.ptr, {bits}, {raw}) -> {raw}")
            loaded.append(found if raw == _WORDS else code.let(f"vector.bitcast {found} : {raw} to {_WORDS}"))
        return transposed(code.let, loaded, _WORDS)

    def _elements(self, words: Iterable[str]) -> Iterator[str]:
        """The float32 elements of all partitions, one after the other."""
        code, bits = self._code, 8 * self._size
        for word in words:
            for part in range(_WORD // self._size):
                raw = word
                if part:
                    raw = code.binary("arith.shrui", word, code.constant(bits * part, I32, LANES), I32, LANES)
                if self._load.type != I32:
                    raw = code.cast("arith.trunci", raw, I32, self._load.type, LANES)
                yield self._float(raw)

    def _float(self, raw: str) -> str:
        """The value of which the sum is, from what is stored."""
        known, values = {self._load.number: raw}, self._partitions[0].values
        for node in self._nodes:
            arguments = [known[a.number] if a.rank == ROW else values.vector(a) for a in node.arguments]
            known[node.number] = operation(self._code, node, arguments, LANES)
        return known[self._value.number]
