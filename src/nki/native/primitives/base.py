"""The dispatch loop, the barrier between threads, and the helpers that gather and scatter one row."""

from __future__ import annotations

from nki.native.primitives.abi import (
    ALONE,
    ARRIVED,
    HOME_BITS,
    JUMP,
    LENGTH_BITS,
    PHASE,
    RECORD_ARGUMENTS,
    SHARED,
    STOPPED,
    THREAD,
    THREADS,
    YIELD,
    dims_of,
)
from nki.native.primitives.nest import nest
from nki.native.primitives.rows import row
from nki.native.primitives.writer import POINTER, FunctionBuilder

_PARTITIONS = 128
_SPINS = 256
_LONG_MASK = (1 << LENGTH_BITS) - 1


def run_text(name: str) -> str:
    """``int64 run(int64* words, int64 start, int64 end, int64* ctx)``: execute the records of words [start, end).

    Returns the index of the first record whose function returned something else than 0, else `end`; one that returns
    `JUMP` has the records from word 3 of its own on executed next. A thread executes
    its part of the partitions of each record: of the 128 by home, those from 128 t / n up to 128 (t + 1) / n; the last
    thread those beyond 128 as well. A thread that stops early tells the others, who stop at their next barrier.
    """
    w = FunctionBuilder()
    own = w.word("%ctx", THREAD)
    threads = w.select(w.is_("sgt", w.word("%ctx", THREADS), 1), w.word("%ctx", THREADS), 1)
    lower = w.op("divsi", w.mul(own, _PARTITIONS), threads)
    upper = w.op("divsi", w.mul(w.add(own, 1), _PARTITIONS), threads)
    is_last = w.is_("eq", w.add(own, 1), threads)
    zero, one = w.constant(0), w.constant(1)
    w.line(f"%at, %status = scf.while (%i = %start, %s = {zero}) : (i64, i64) -> (i64, i64) {{")
    more = w.both(w.is_("slt", "%i", "%end"), w.is_("eq", "%s", 0))
    w.line(f"scf.condition({more}) %i, %s : i64, i64")
    w.line("} do {")
    w.line("^bb0(%j: i64, %unused: i64):")
    record = w.at("%words", w.mul("%j", 8))
    packed = w.word(record, 1)
    length = w.op("andi", packed, w.constant(_LONG_MASK))
    first, last = _part(w, packed, w.word(record, 2), (lower, upper), (own, is_last))
    function = w.word(record, 0, POINTER)
    kinds = "!llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i64) -> i32"
    found = w.value(f"llvm.call {function}({record}, %ctx, {first}, {last}) : {kinds}")
    status = w.value(f"arith.extui {found} : i32 to i64")
    jumps = w.is_("eq", status, JUMP)
    after = w.select(w.is_("eq", status, 0), w.add("%j", length), w.select(jumps, w.word(record, 3), "%j"))
    w.line(f"scf.yield {after}, {w.select(jumps, 0, status)} : i64, i64")
    w.line("}")
    stopped = w.is_("ne", "%status", 0)
    with w.when(w.both(stopped, w.is_("sgt", threads, 1))):
        place = w.at(w.word("%ctx", SHARED, POINTER), 8 * STOPPED)
        w.line(f"llvm.store {one}, {place} atomic release {{alignment = 8 : i64}} : i64, !llvm.ptr")
    w.done("%at", "i64")
    return w.function(name, ["%words: !llvm.ptr", "%start: i64", "%end: i64", "%ctx: !llvm.ptr"], "i64")


def _part(
    w: FunctionBuilder, packed: str, count: str, bounds: tuple[str, str], thread: tuple[str, str]
) -> tuple[str, str]:
    """The partitions of a record that this thread executes."""
    own, is_last = thread
    home = w.op("andi", w.op("shrui", packed, w.constant(LENGTH_BITS)), w.constant((1 << HOME_BITS) - 1))
    lower, upper = (_clamped(w, w.sub(bound, home), count) for bound in bounds)
    lower = w.select(w.is_("eq", own, 0), 0, lower)
    upper = w.select(is_last, count, upper)
    alone = w.is_("ne", w.op("andi", packed, w.constant(ALONE)), 0)
    is_first = w.is_("eq", own, 0)
    everything = w.select(is_first, count, 0)
    return w.select(alone, 0, lower), w.select(alone, everything, upper)


def _clamped(w: FunctionBuilder, value: str, most: str) -> str:
    return w.op("minsi", w.op("maxsi", value, w.constant(0)), most)


def barrier_text(name: str) -> str:
    """A record function without slots: wait until all threads are here; 1 if one of them has stopped.

    Nothing is done for one thread. A thread that has waited for long gives way to others, if the context says how.
    """
    w = FunctionBuilder()
    threads = w.word("%ctx", THREADS)
    zero32 = w.constant(0, "i32")
    w.line(f"%result = scf.if {w.is_('sgt', threads, 1)} -> (i32) {{")
    shared = w.word("%ctx", SHARED, POINTER)
    arrived, phase, stopped = (w.at(shared, 8 * i) for i in (ARRIVED, PHASE, STOPPED))
    one = w.constant(1)
    before = _atomic_load(w, phase)
    others = w.value(f"llvm.atomicrmw add {arrived}, {one} acq_rel {{alignment = 8 : i64}} : !llvm.ptr, i64")
    w.line(f"%waited = scf.if {w.is_('eq', w.add(others, 1), threads)} -> (i32) {{")
    _atomic_store(w, w.constant(0), arrived)
    _atomic_store(w, w.add(before, 1), phase)
    w.line(f"scf.yield {zero32} : i32")
    w.line("} else {")
    passed = _wait(w, phase, stopped, before)
    with w.when(w.is_("eq", w.value(f"arith.extui {passed} : i1 to i64"), 0)):
        w.value(f"llvm.atomicrmw sub {arrived}, {one} acq_rel {{alignment = 8 : i64}} : !llvm.ptr, i64")
    failed = w.select(passed, zero32, w.constant(1, "i32"), "i32")
    w.line(f"scf.yield {failed} : i32")
    w.line("}")
    w.line("scf.yield %waited : i32")
    w.line("} else {")
    w.line(f"scf.yield {zero32} : i32")
    w.line("}")
    w.done("%result", "i32")
    return w.function(name, RECORD_ARGUMENTS, "i32")


def _wait(w: FunctionBuilder, phase: str, stopped: str, before: str) -> str:
    """Turn until the phase changes (i1 true) or a thread has stopped without having changed it."""
    w.line(f"%turns, %seen = scf.while (%n = {w.constant(0)}) : (i64) -> (i64, i64) {{")
    staying = w.is_("eq", _atomic_load(w, stopped), 0)
    now = _atomic_load(w, phase)
    waiting = w.both(w.is_("eq", now, before), staying)
    w.line(f"scf.condition({waiting}) %n, {now} : i64, i64")
    w.line("} do {")
    w.line("^bb0(%turn: i64, %ignored: i64):")
    give_way = w.word("%ctx", YIELD, POINTER)
    known = w.value(f'llvm.icmp "ne" {give_way}, {w.value("llvm.mlir.zero : !llvm.ptr")} : !llvm.ptr')
    often = w.is_("eq", w.op("andi", "%turn", w.constant(_SPINS - 1)), _SPINS - 1)
    with w.when(w.both(known, often)):
        w.value(f"llvm.call {give_way}() : !llvm.ptr, () -> i32")
    w.line(f"scf.yield {w.add('%turn', 1)} : i64")
    w.line("}")
    return w.is_("ne", "%seen", before)


def _atomic_load(w: FunctionBuilder, pointer: str) -> str:
    return w.value(f"llvm.load {pointer} atomic acquire {{alignment = 8 : i64}} : !llvm.ptr -> i64")


def _atomic_store(w: FunctionBuilder, value: str, pointer: str) -> None:
    w.line(f"llvm.store {value}, {pointer} atomic release {{alignment = 8 : i64}} : i64, !llvm.ptr")


def gather_text(name: str, size: int) -> str:
    """``void gather(int8* dst, int8* src, int64* dims)``: a strided row of items to a contiguous one."""
    return _row_text(name, size, gathers=True)


def scatter_text(name: str, size: int) -> str:
    """``void scatter(int8* dst, int8* src, int64* dims)``: a contiguous row to a strided one."""
    return _row_text(name, size, gathers=False)


def _row_text(name: str, size: int, gathers: bool) -> str:
    w = FunctionBuilder()
    dims = dims_of(w, "%dims")
    outer, (count, stride) = dims[:-1], dims[-1]
    dense: list[str] = []
    step = w.mul(count, size)
    for extent, _ in reversed(outer):
        dense.insert(0, step)
        step = w.mul(step, extent)
    extents, strides = [extent for extent, _ in outer], [each for _, each in outer]
    pointers = [("%dst", dense), ("%src", strides)] if gathers else [("%dst", strides), ("%src", dense)]
    inner = (w.constant(size), stride) if gathers else (stride, w.constant(size))
    with nest(w, extents, pointers) as (dst, src):
        row(w, size, dst, src, count, inner)
    w.done()
    return w.function(name, ["%dst: !llvm.ptr", "%src: !llvm.ptr", "%dims: !llvm.ptr"])
