"""Rows that fall into groups of elements, each of which is reduced on its own."""

from __future__ import annotations

from collections.abc import Sequence

from nki.native.emit.loops import LoopNest
from nki.native.emit.partitions import Partitions
from nki.native.emit.rows import Partition
from nki.native.emit.values import EmittedValues


def grouped(partitions: Partitions, work: LoopNest, partition: str) -> None:
    """Emit the loop over the groups of a partition, several of them in step; behind the last one, it is done again."""
    code, groups = partitions.code, partitions.memory.immediates[partitions.trace.groups]
    whole = partitions.opened(work, partition)
    last = code.binary("arith.subi", groups, code.number(1), "i64", 0)
    first = code.name()
    with code.block(f"scf.for {first} = {code.number(0)} to {groups} step {code.number(work.copies)} : i64 {{"):
        numbers = [
            code.binary("arith.minsi", code.add(first, code.number(copy)), last, "i64", 0)
            for copy in range(work.copies)
        ]
        _reduced(partitions, work, [(whole, number) for number in numbers])
    partitions.scatter(whole)


def grouped_in_step(partitions: Partitions, work: LoopNest, partition: str) -> None:
    """Emit the loop over the groups of several partitions in step, for sums that have a partition in each lane."""
    code, groups = partitions.code, partitions.memory.immediates[partitions.trace.groups]
    items = partitions.several(work, partition, work.copies)
    number = code.name()
    with code.block(f"scf.for {number} = {code.number(0)} to {groups} step {code.number(1)} : i64 {{"):
        _reduced(partitions, work, [(item, number) for item in items])
    for item in items:
        partitions.scatter(item)


def _reduced(partitions: Partitions, work: LoopNest, parts: Sequence[tuple[Partition, str]]) -> None:
    """Reduce groups of these numbers of partitions in step, and store what comes out."""
    code, trace, length = partitions.code, partitions.trace, partitions.counts[0]
    items = [_part(partitions, whole, code.multiply(number, length)) for whole, number in parts]
    partitions.run(work, items)
    for item, (whole, number) in zip(items, parts, strict=True):
        for store in trace.stores:
            kind = store.value.type
            there = code.let(
                f"llvm.getelementptr {whole.writes[store.slot]}[{number}] : (!llvm.ptr, i64) -> !llvm.ptr, {kind}"
            )
            value = item.values.single(store.value)
            size = trace.slots[store.slot].dtype.itemsize
            code.do(f"llvm.store {value}, {there} {{alignment = {size} : i64}} : {kind}, !llvm.ptr")


def _part(partitions: Partitions, whole: Partition, start: str) -> Partition:
    """A group as if it were a partition."""
    code = partitions.code
    result = Partition(whole.index, EmittedValues(code, partitions.outer))
    for slot, pointer in whole.reads.items():
        size = partitions.trace.slots[slot].dtype.itemsize
        result.reads[slot] = code.at(pointer, code.multiply(start, code.number(size)))
    return result
