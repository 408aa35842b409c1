"""Recurrences: one element after the other, several partitions in step."""

from __future__ import annotations

from collections.abc import Sequence

from nki.native.emit.code import Code
from nki.native.emit.ops import operation
from nki.native.emit.rows import Partition
from nki.native.trace.expression import F32, ROW, Node, RecurrenceStep, reachable

_POINTER = ": (!llvm.ptr, i64) -> !llvm.ptr, f32"


def scan(code: Code, node: Node, partitions: Sequence[Partition], count: str) -> None:
    """Emit the loop of a recurrence; its sequences lie in scratch rows, and its states go to another one."""
    step = node.attribute
    assert isinstance(step, RecurrenceStep), "a recurrence has a step"
    sequences = [argument for argument in node.arguments if argument.rank == ROW]
    index, result = code.name(), code.name()
    states = [code.name() for _ in partitions]
    starts = [partition.values.single(node.arguments[0]) for partition in partitions]
    pairs = ", ".join([f"{state} = {start}" for state, start in zip(states, starts, strict=True)])
    kinds = ", ".join([F32] * len(states))
    several = f":{len(states)}" if len(states) > 1 else ""
    head = (
        f"scf.for {index} = {code.number(0)} to {count} step {code.number(1)} iter_args({pairs}) -> ({kinds}) : i64 {{"
    )
    with code.block(f"{result}{several} = {head}"):
        final = [
            _advanced(code, step, sequences, partition, state, index)
            for partition, state in zip(partitions, states, strict=True)
        ]
        for partition, state in zip(partitions, final, strict=True):
            there = code.let(f"llvm.getelementptr {partition.kept[node.number]}[{index}] {_POINTER}")
            code.do(f"llvm.store {state}, {there} {{alignment = 4 : i64}} : f32, !llvm.ptr")
        code.do(f"scf.yield {', '.join(final)} : {kinds}")
    for i, partition in enumerate(partitions):
        partition.final[node.number] = f"{result}#{i}" if several else result


def _advanced(
    code: Code, step: RecurrenceStep, sequences: Sequence[Node], partition: Partition, state: str, index: str
) -> str:
    """The next state of a partition."""
    known = {step.state.number: state}
    for leaf, sequence in zip(step.elements, sequences, strict=True):
        there = code.let(f"llvm.getelementptr {partition.kept[sequence.number]}[{index}] {_POINTER}")
        known[leaf.number] = code.let(f"llvm.load {there} {{alignment = 4 : i64}} : !llvm.ptr -> f32")
    for node in reachable([step.result]):
        if node.number in known:
            continue
        if node.rank == ROW:
            arguments = [known[argument.number] for argument in node.arguments]
            known[node.number] = operation(code, node, arguments, 0)
        else:
            known[node.number] = partition.values.single(node)
    return known[step.result.number]
