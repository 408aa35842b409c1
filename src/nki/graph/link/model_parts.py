"""Which parts of a model a kernel computes, with the predicted work of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nki.core.origin import Origin
from nki.core.source import Location
from nki.graph.ir import Group, Op, Value
from nki.graph.passes.kinds import nbytes
from nki.spec.model_kernels import KernelPart
from nki.target.model import Target

_FREE = frozenset({"constant", "iota", "broadcast_in_dim", "reshape"})
"""Operations that are computed where they are used."""

_PS = 1000


def parts_of(group: Group, target: Target) -> tuple[KernelPart, ...]:
    """The parts of a group: operations of the same origin are one.

    The work of an operation is the time of its arithmetic at the full rate of the engine that has it, and of the bytes
    that it is the first of the group to read from device memory, or that it writes there.
    """
    reads = _reads(group)
    found: dict[Origin, tuple[int, ...]] = {}
    free = all(op.name in _FREE for op in group.ops)
    for op in group.ops:
        writes = sum(nbytes(value.type) for value in op.results if value in group.outputs)
        if free or op.name not in _FREE or writes:
            ns = 0.0 if op.name in _FREE else _arithmetic_ns(op, target)
            ns += (reads[op] + writes) / target.dma.aggregate_gbps
            own = (round(ns * _PS), reads[op], writes)
            before = found.get(origin_of(op), (0, 0, 0))
            found[origin_of(op)] = tuple(a + b for a, b in zip(before, own, strict=True))
    return tuple(KernelPart(origin, *sizes) for origin, sizes in found.items())


def parts_at(location: Location) -> tuple[KernelPart, ...]:
    """The part that a kernel with one line is for; () if it is for none."""
    return () if location.origin is None else (KernelPart(location.origin, 1, 1, 1),)


def origin_of(op: Op) -> Origin:
    """Where an operation was written; where nothing is known of that, its own name is what there is to say."""
    return op.location.origin or Origin((), op.name)


def _reads(group: Group) -> Mapping[Op, int]:
    """For each operation the bytes that it is the first to read.

    Who reads an input by way of an operation that is free reads the input.
    """
    reads = dict.fromkeys(group.ops, 0)
    unread = {value: nbytes(value.type) for value in group.inputs}
    stands: dict[Value, Value] = {}
    for op in group.ops:
        last = op.name not in _FREE or not set(op.results).isdisjoint(group.outputs)
        for value in op.operands:
            source = stands.get(value, value)
            if last:
                reads[op] += unread.pop(source, 0)
            elif source in unread:
                stands.update(dict.fromkeys(op.results, source))
    return reads


def _arithmetic_ns(op: Op, target: Target) -> float:
    terms = _terms(op)
    wide = terms is not None and op.operands[0].type.dtype.itemsize > 2
    rate = target.peak.tensor_fp32_tflops if wide else target.peak.tensor_bf16_tflops
    if terms is None or not rate:
        size = max((value.type.size for value in (*op.operands, *op.results)), default=0)
        vector = target.engines["vector"]
        return size / (vector.lanes * vector.ghz)
    return 2.0 * op.results[0].type.size * terms / (rate * 1000.0)


def _terms(op: Op) -> int | None:
    """How many products each element of a product is the sum of; None for other operations."""
    if op.name == "dot_general":
        shape = op.operands[0].type.shape
        return prod(shape[dimension] for dimension in op.attributes["lhs_contracting_dimensions"])
    if op.name == "convolution":
        kernel = op.operands[1].type
        return kernel.size // max(kernel.shape[op.attributes["kernel_output_feature_dimension"]], 1)
    return None
