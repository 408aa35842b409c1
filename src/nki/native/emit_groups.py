"""Rows that fall into groups of elements, each of which is reduced on its own."""

from __future__ import annotations

from nki.native.emit_partitions import Partitions
from nki.native.emit_plan import Plan
from nki.native.emit_rows import Partition
from nki.native.emit_values import Values


def grouped(partitions: Partitions, work: Plan, partition: str) -> None:
    """Emit the loop over the groups of a partition, several of them in step; behind the last one, it is done again."""
    code, trace = partitions.code, partitions.trace
    groups, length = partitions.memory.immediates[trace.groups], partitions.counts[0]
    whole = partitions.opened(work, partition)
    last = code.binary("arith.subi", groups, code.number(1), "i64", 0)
    first = code.name()
    with code.block(f"scf.for {first} = {code.number(0)} to {groups} step {code.number(work.copies)} : i64 {{"):
        items, numbers = [], []
        for copy in range(work.copies):
            number = code.binary("arith.minsi", code.add(first, code.number(copy)), last, "i64", 0)
            items.append(_part(partitions, whole, code.multiply(number, length)))
            numbers.append(number)
        partitions.run(work, items)
        for item, number in zip(items, numbers, strict=True):
            for store in trace.stores:
                kind = store.value.type
                there = code.let(
                    f"llvm.getelementptr {whole.writes[store.slot]}[{number}] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}"
                )
                value = item.values.single(store.value)
                size = trace.slots[store.slot].dtype.itemsize
                code.do(f"llvm.store {value}, {there} {{alignment = {size} : i64}} : {kind}, !llvm.ptr")
    partitions.scatter(whole)


def _part(partitions: Partitions, whole: Partition, start: str) -> Partition:
    """A group as if it were a partition."""
    code = partitions.code
    result = Partition(whole.index, Values(code, partitions.outer))
    for slot, pointer in whole.reads.items():
        size = partitions.trace.slots[slot].dtype.itemsize
        result.reads[slot] = code.at(pointer, code.multiply(start, code.number(size)))
    return result
