"""Kernels for collectives: device memory to device memory, by the collectives of `nki.collectives`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.engines import storage
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op
from nki.graph.replica_groups import groups_of
from nki.spec.replica_group import ReplicaGroup
from nki.target.model import Target

_REDUCTIONS = {"add": nl.add, "minimum": nl.minimum, "maximum": nl.maximum}
_FILL_ELEMENTS = 2048


def emit_collective(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of one collective, or of the number of this rank.

    Raises:
        GraphError: an operation of another kind (``graph.unsupported``).
    """
    op = group.ops[-1]
    carry_out = _KERNELS.get(op.name)
    if carry_out is None:
        raise unsupported(op, "it is no collective", "give it a group of its own")

    def kernel(*tensors: NkiTensor) -> None:
        known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
        sources = [_rows(known[value]) for value in op.operands]
        carry_out(op, sources, _rows(known[op.results[0]]), target)

    return kernel


def _rows(tensor: NkiTensor) -> NkiTensor:
    """The tensor with two dimensions, of which the first one stays."""
    shape = tensor.shape or (1,)
    return tensor.reshape((shape[0], max(prod(shape[1:]), 1)))


def _reduction(op: Op) -> Any:
    """What the region does, which is one operation once the model is legal."""
    (inner,) = op.regions[0].ops
    assert isinstance(inner, Op), "regions have no groups"
    return _REDUCTIONS[inner.name]


def _all_reduce(op: Op, sources: list[NkiTensor], dst: NkiTensor, target: Target) -> None:
    ncc.all_reduce(sources, [dst], ReplicaGroup(groups_of(op)), _reduction(op))


def _reduce_scatter(op: Op, sources: list[NkiTensor], dst: NkiTensor, target: Target) -> None:
    ncc.reduce_scatter(sources, [dst], ReplicaGroup(groups_of(op)), 0, _reduction(op))


def _all_gather(op: Op, sources: list[NkiTensor], dst: NkiTensor, target: Target) -> None:
    ncc.all_gather(sources, [dst], ReplicaGroup(groups_of(op)), 0)


def _all_to_all(op: Op, sources: list[NkiTensor], dst: NkiTensor, target: Target) -> None:
    ncc.all_to_all(sources, [dst], ReplicaGroup(groups_of(op)), 0)


def _permute(op: Op, sources: list[NkiTensor], dst: NkiTensor, target: Target) -> None:
    """Ranks that nobody sends to get zeros."""
    _fill(dst, target)
    ncc.collective_permute(sources, [dst], [tuple(pair) for pair in op.attributes["source_target_pairs"]])


def _fill(dst: NkiTensor, target: Target) -> None:
    rows, columns = dst.shape
    zeros = nl.zeros((min(rows, target.partitions), min(columns, _FILL_ELEMENTS)), storage(dst.dtype), buffer=nl.sbuf)
    for row in range(0, rows, zeros.shape[0]):
        for column in range(0, columns, zeros.shape[1]):
            part = dst[row : min(row + zeros.shape[0], rows), column : min(column + zeros.shape[1], columns)]
            nisa.dma_copy(dst=part, src=zeros[: part.shape[0], : part.shape[1]])


def _rank(op: Op, sources: list[NkiTensor], dst: NkiTensor, target: Target) -> None:
    nisa.register_store(dst=dst, src=ncc.rank_id())


_KERNELS: dict[str, Callable[[Op, list[NkiTensor], NkiTensor, Target], None]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "collective_permute": _permute,
    "partition_id": _rank,
    "replica_id": _rank,
}
