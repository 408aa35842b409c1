"""What happens in one partition, or in several in step: rows are found, loops run, results are written."""

from __future__ import annotations

from collections.abc import Sequence

from nki.native.emit.code import Code
from nki.native.emit.loops import LoopNest
from nki.native.emit.memory import SCRATCH, AddressEmitter
from nki.native.emit.ordered_sums import sums_in_order
from nki.native.emit.rows import Partition, row_loop
from nki.native.emit.scan import scan
from nki.native.emit.values import EmittedValues
from nki.native.trace.expression import COLUMN, Node
from nki.native.trace.symbolic_execution import Store, Trace

_ALIGNMENT = 64


class Partitions:
    """Writes the loops of plans for the partitions of a record."""

    def __init__(
        self,
        code: Code,
        memory: AddressEmitter,
        trace: Trace,
        outer: EmittedValues,
        rows: Sequence[int | Node],
        last: str,
    ) -> None:
        self.code = code
        self.memory = memory
        self.trace = trace
        self.outer = outer
        self.last = last
        own = code.word("%words", 3)
        self.counts = [own if word < 0 else memory.immediates[word] for word in trace.domains]
        self._rows = rows
        self._distance = code.number(1)
        if rows:
            self._measure()

    def _measure(self) -> None:
        """The bytes of a scratch row, of those of a partition, and how many of them are used."""
        code = self.code
        longest = self.counts[0]
        for count in self.counts[1:]:
            longest = code.binary("arith.maxsi", longest, count, "i64", 0)
        if self.trace.groups >= 0:
            longest = code.multiply(longest, self.memory.immediates[self.trace.groups])
        size = code.add(code.multiply(longest, code.number(4)), code.number(2 * _ALIGNMENT - 1))
        self._row_bytes = code.binary("arith.andi", size, code.number(-_ALIGNMENT), "i64", 0)
        self._all = code.multiply(self._row_bytes, code.number(len(self._rows)))
        self._needed = self._all
        if not any(isinstance(row, Node) for row in self._rows):
            self._needed = code.select(self.memory.all_dense(), code.number(0), self._all, "i64", 0)
        self._scratch = code.word("%ctx", 0)

    def too_long(self) -> str | None:
        """Whether scratch memory does not suffice; None if none is needed."""
        code = self.code
        return code.compare("sgt", self._needed, code.number(SCRATCH), "i64", 0) if self._rows else None

    def step(self, copies: int) -> str:
        """Several partitions at once if there is scratch memory for them, else one, several times at once."""
        code = self.code
        if copies == 1:
            return code.number(1)
        all_of_them = code.multiply(self._needed, code.number(copies))
        fits = code.compare("sle", all_of_them, code.number(SCRATCH), "i64", 0)
        self._distance = code.select(fits, code.number(1), code.number(0), "i64", 0)
        return code.select(fits, code.number(copies), code.number(1), "i64", 0)

    def done(self, work: LoopNest, partition: str, copies: int) -> list[Partition]:
        """Run a plan for partitions from this one on; behind the last one, it is done again."""
        items = self.several(work, partition, copies)
        self.run(work, items)
        return items

    def several(self, work: LoopNest, partition: str, copies: int) -> list[Partition]:
        """`copies` partitions from this one on, the last one as often as is necessary, with pointers to their rows."""
        return [self.opened(work, self._index(partition, copy, copies), copy) for copy in range(copies)]

    def run(self, work: LoopNest, items: Sequence[Partition]) -> None:
        """The loops of a plan; all columns are known then."""
        self._columns(work, items)
        for loop in work.loops:
            if loop.in_order:
                sums_in_order(self.code, loop, items, self.counts[loop.domain])
            else:
                row_loop(self.code, loop, items, self.counts[loop.domain], work.unroll)
            for node in loop.scans:
                scan(self.code, node, items, self.counts[loop.domain])
            self._columns(work, items)

    def _index(self, partition: str, copy: int, copies: int) -> str:
        if copies == 1:
            return partition
        code = self.code
        shifted = code.add(partition, code.multiply(code.number(copy), self._distance))
        return code.binary("arith.minsi", shifted, self.last, "i64", 0)

    def opened(self, work: LoopNest, index: str, copy: int = 0) -> Partition:
        """A partition with pointers to its rows; those whose elements do not lie side by side are gathered."""
        item = Partition(index, EmittedValues(self.code, self.outer))
        for i, row in enumerate(self._rows):
            if isinstance(row, Node):
                item.kept[row.number] = self._row(i, copy)
            elif self.trace.slots[row].mode == "write":
                if work.writes:
                    item.scratch[row] = self._row(i, copy)
                    item.writes[row] = self.memory.writable_row(row, item.index, item.scratch[row])
                    item.streams[row] = self.memory.streams(row, item.writes[row])
            elif row in work.slots:
                item.reads[row] = self.memory.readable_row(row, item.index, self._row(i, copy))
        return item

    def _row(self, row: int, copy: int) -> str:
        code = self.code
        offset = code.multiply(self._row_bytes, code.number(row))
        if copy:
            ahead = code.multiply(code.multiply(self._all, code.number(copy)), self._distance)
            offset = code.add(offset, ahead)
        return code.pointer(code.add(self._scratch, offset))

    def _columns(self, work: LoopNest, items: Sequence[Partition]) -> None:
        """Compute the columns that can be known: the others wait for a loop."""
        known = items[0].values.names
        for node in work.columns:
            waiting = [a for a in node.arguments if a.rank == COLUMN and a.number not in known]
            if node.op == "reduce" or node.number in known or waiting:
                continue
            if node.op == "last" and node.arguments[0].number not in items[0].final:
                continue
            for item in items:
                self._column(node, item)

    def _column(self, node: Node, item: Partition) -> None:
        if node.op == "load":
            item.values.names[node.number] = self.memory.load(node.whole, item.index, node.type)
        elif node.op == "partition":
            item.values.names[node.number] = self.code.cast("arith.trunci", item.index, "i64", "i32", 0)
        elif node.op == "last":
            item.values.names[node.number] = item.final[node.arguments[0].number]
        else:
            item.values.compute(node)

    def finish(self, items: Sequence[Partition]) -> None:
        """Write what waits behind the loops: rows that are scattered, and columns."""
        for item in items:
            self.scatter(item)
        single: list[Store] = [store for store in self.trace.stores if store.domain < 0]
        for item in items:
            for store in single:
                self.memory.store(store.slot, item.index, item.values.single(store.value), store.value.type)

    def scatter(self, item: Partition) -> None:
        """Put rows that were written into scratch memory where they belong."""
        for slot, scratch in item.scratch.items():
            self.memory.scatter(slot, item.index, scratch)
