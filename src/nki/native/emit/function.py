"""From a trace to the MLIR text of one function that executes its records.

The function has the interface of every compiled one: words of the record, context, first and last partition; it returns
1, with nothing written, if a check would warn, because the NumPy machine is the one that words warnings.
"""

from __future__ import annotations

from nki.native.emit.code import LANES, Code, type_of
from nki.native.emit.columns import Columns
from nki.native.emit.groups import grouped, grouped_in_step
from nki.native.emit.loops import plan
from nki.native.emit.memory import AddressEmitter
from nki.native.emit.partitions import Partitions
from nki.native.emit.values import scalars
from nki.native.trace.expression import MASK, Node
from nki.native.trace.symbolic_execution import Trace

_REGISTERS = 128
_NAN = 0x7FC0_0000


def emit(trace: Trace, name: str) -> str:
    """The module that defines function `name`."""
    writer = _FunctionEmitter(trace)
    writer.write()
    body = "\n".join([*writer.code.head, *writer.code.lines])
    arguments = "%words: !llvm.ptr, %ctx: !llvm.ptr, %first: i64, %last: i64"
    return f"module {{\n  func.func @{name}({arguments}) -> i32 {{\n{body}\n  }}\n}}\n"


class _FunctionEmitter:
    def __init__(self, trace: Trace) -> None:
        self.code = Code()
        self.trace = trace
        self.checks = plan(trace.bad, ())
        self.work = plan([store.value for store in trace.stores if store.domain < 0], trace.stores)
        written = {slot for slot, item in enumerate(trace.slots) if item.mode == "write"}
        live = sorted(self.checks.slots | self.work.slots | written)
        self.memory = AddressEmitter(self.code, trace, live)
        nodes = {node.number: node for node in [*self.checks.scalars, *self.work.scalars]}
        self.outer = scalars(self.code, self.memory, [nodes[number] for number in sorted(nodes)])
        rows: list[int | Node] = [slot for slot in live if trace.slots[slot].row]
        for work in (self.checks, self.work):
            rows += [node for loop in work.loops for node in [*loop.spills, *loop.scans] if node not in rows]
        self.last = self.code.binary("arith.subi", "%last", self.code.number(1), "i64", 0)
        self.partitions = Partitions(self.code, self.memory, trace, self.outer, rows, self.last)

    def write(self) -> None:
        """The whole body."""
        code = self.code
        refused = self._refused()
        if refused is None:
            self._execute()
            code.do(f"return {code.constant(0, 'i32', 0)} : i32")
            return
        result = code.name()
        one, zero = code.constant(1, "i32", 0), code.constant(0, "i32", 0)
        with code.block(f"{result} = scf.if {refused} -> (i32) {{"):
            code.do(f"scf.yield {one} : i32")
            code.otherwise()
            self._execute()
            code.do(f"scf.yield {zero} : i32")
        code.do(f"return {result} : i32")

    # --- before anything is written

    def _refused(self) -> str | None:
        """Whether the host must execute the record; None if it never must."""
        refused = self.partitions.too_long()
        if not self.trace.bad:
            return refused
        bad = self._bad_rows() if self.checks.loops else self._bad_columns()
        return bad if refused is None else self.code.binary("arith.ori", refused, bad, "i1", 0)

    def _bad_rows(self) -> str:
        code, name = self.code, self.code.name()
        with code.accumulated("%first", "%last", 1, "i1", code.constant(0, "i1", 0), name) as (partition, before, put):
            values = self.partitions.done(self.checks, partition, 1)[0].values
            put(self._either(before, [values.single(node) for node in self.trace.bad]))
        return name

    def _bad_columns(self) -> str:
        code, name = self.code, self.code.name()
        start = code.constant(0, "i1", 0)
        with code.accumulated("%first", "%last", LANES, "i1", start, name) as (partition, before, put):
            columns = Columns(code, self.memory, self.outer, partition, self.last)
            columns.compute(self.checks.columns)
            masks = [columns.vector(node) for node in self.trace.bad]
            single = [code.let(f"vector.reduction <or>, {m} : {type_of(MASK, LANES)} into i1") for m in masks]
            put(self._either(before, single))
        return name

    def _either(self, before: str, masks: list[str]) -> str:
        for mask in masks:
            before = self.code.binary("arith.ori", before, mask, "i1", 0)
        return before

    # --- the work

    def _execute(self) -> None:
        code = self.code
        if self.trace.clobbers:
            self._clobber()
        if not self.trace.stores:
            return
        partition, groups = code.name(), self.trace.groups >= 0
        if not self.work.loops:
            with code.block(f"scf.for {partition} = %first to %last step {code.number(LANES)} : i64 {{"):
                columns = Columns(code, self.memory, self.outer, partition, self.last)
                columns.compute(self.work.columns)
                columns.store(self.trace.stores)
            return
        in_step = any(loop.in_order for loop in self.work.loops)
        step = code.number(1) if groups and not in_step else self.partitions.step(self.work.copies)
        with code.block(f"scf.for {partition} = %first to %last step {step} : i64 {{"):
            if groups:
                (grouped_in_step if in_step else grouped)(self.partitions, self.work, partition)
            else:
                self.partitions.finish(self.partitions.done(self.work, partition, self.work.copies))

    def _clobber(self) -> None:
        code = self.code
        begins = code.compare("eq", "%first", code.number(0), "i64", 0)
        with code.block(f"scf.if {begins} {{"):
            for slot, item in enumerate(self.trace.slots):
                if item.view is None and item.mode == "write":
                    bits = _NAN if item.path == "accumulator" else 0
                    self.memory.fill_registers(slot, bits, _REGISTERS)
