"""``neuronxcc.nki.nccl``: collectives of several ranks, as published kernels call them; no document has them.

Each of them is the one of `nki.collectives` with its name, on tensors in HBM. The kernel runs under `nki.run_ranks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki import collectives
from nki.beta1.errors import refused
from nki.beta1.language.arguments import kind_of, operation
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.operands import in_hbm
from nki.core.nki_tensor import NkiTensor

__all__ = ["all_gather", "all_reduce", "collective_permute", "reduce_scatter"]

Groups = Sequence[Sequence[int]]


def all_reduce(*, op: Any, srcs: Sequence[Any], dsts: Sequence[Any], replica_groups: Groups, dtype: Any = None) -> None:
    """Every rank gets the reduction of the sources of all ranks of its group.

    Args:
        dtype: of the tensors.
    """
    sources, destinations = _tensors("all_reduce", srcs, dsts, dtype)
    group, operator = collectives.ReplicaGroup(replica_groups), operation(op, "op")
    collectives.all_reduce(srcs=sources, dsts=destinations, replica_group=group, op=operator)


def all_gather(
    *,
    srcs: Sequence[Any],
    dsts: Sequence[Any],
    replica_groups: Groups,
    all_gather_dim: int,
    op: Any = None,
    dtype: Any = None,
) -> None:
    """Every rank gets the sources of all ranks of its group, one behind the other.

    Args:
        all_gather_dim: in which the parts follow each other; the dimensions before have size 1.
        op: of no meaning, and given by published kernels all the same.
        dtype: of the tensors.
    """
    if op is not None:
        operation(op, "op")
    sources, destinations = _tensors("all_gather", srcs, dsts, dtype, all_gather_dim)
    group = collectives.ReplicaGroup(replica_groups)
    collectives.all_gather(srcs=sources, dsts=destinations, replica_group=group, collective_dim=0)


def reduce_scatter(
    *,
    op: Any,
    srcs: Sequence[Any],
    dsts: Sequence[Any],
    replica_groups: Groups,
    reduce_scatter_dim: int,
    dtype: Any = None,
) -> None:
    """Every rank gets its part of the reduction of the sources of all ranks of its group.

    Args:
        reduce_scatter_dim: which is divided among the ranks; the dimensions before have size 1.
        dtype: of the tensors.
    """
    sources, destinations = _tensors("reduce_scatter", srcs, dsts, dtype, reduce_scatter_dim)
    group, operator = collectives.ReplicaGroup(replica_groups), operation(op, "op")
    collectives.reduce_scatter(srcs=sources, dsts=destinations, replica_group=group, collective_dim=0, op=operator)


def collective_permute(*, src: Any, dst: Any, source_target_pairs: Sequence[tuple[int, int]]) -> None:
    """Rank `source` of each pair sends its `src` to the `dst` of rank `target`."""
    sources, destinations = _tensors("collective_permute", [src], [dst], None)
    pairs = [(source, target) for source, target in source_target_pairs]
    collectives.collective_permute(srcs=sources, dsts=destinations, source_target_pairs=pairs)


def _tensors(
    function: str, srcs: Sequence[Any], dsts: Sequence[Any], dtype: Any, dim: int = 0
) -> tuple[list[NkiTensor], list[NkiTensor]]:
    """The operands, with the dimension that is gathered or divided as the first one."""
    found = []
    for role, given in (("srcs", srcs), ("dsts", dsts)):
        tensors = [in_hbm(each, role, function) for each in given]
        for each in tensors:
            if kind_of(dtype, each.dtype) != each.dtype:
                raise refused(
                    "argument",
                    f"dtype of 'nccl.{function}' is {dtype!r}, and {role} has {each.describe()}",
                    "omit dtype, or cast the tensor first",
                )
        found.append([_from(each, dim, function) for each in tensors])
    return found[0], found[1]


def _from(tensor: Tensor, dim: int, function: str) -> NkiTensor:
    elements = tensor.elements()
    if not 0 <= dim < tensor.ndim or any(size != 1 for size in tensor.shape[:dim]):
        raise refused(
            "argument",
            f"'nccl.{function}' of dimension {dim} of {tensor.describe()}",
            "let the dimension be the first one, but for those of size 1: index the others with ints, part by part",
        )
    for _ in range(dim):
        elements = elements.squeeze_dim(0)
    return elements
