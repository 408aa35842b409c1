"""Collectives on tensors in HBM, one instruction each, and two ways to find a rank's own part of a tensor.

A collective reads and writes tensors of the kernel's own, never the arguments and results of a program (NKI reference
of `nki.collectives`), so each kernel copies its argument first. DMA does the copies and the collective queue the
exchange; bytes over the links bound all of them. ``replica_group`` lists the ranks that exchange with each other.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.collectives import ReplicaGroup
from nkilib import limits, streaming


def _own_copy(tensor: Any) -> Any:
    """A tensor of the kernel's own with the argument's elements."""
    copy = nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=copy, src=tensor)
    return copy


def _returned(tensor: Any) -> Any:
    """The elements of a tensor of the kernel's own as a result of the program."""
    result = streaming.result(tensor.shape, tensor.dtype)
    nisa.dma_copy(dst=result, src=tensor)
    return result


def _own(shape: tuple[int, ...], dtype: Any) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


@nki.jit
def all_reduce_hbm_kernel(input: Any, replica_group: ReplicaGroup) -> Any:
    """The sum of a tensor over all ranks, on each of them.

    Args:
        input: of any shape and dtype that sums have; equal shapes on all ranks.
        replica_group: ranks that exchange.
    """
    total = _own(input.shape, input.dtype)
    ncc.all_reduce(srcs=[_own_copy(input)], dsts=[total], replica_group=replica_group, op=nl.add)
    return _returned(total)


@nki.jit
def all_gather_hbm_kernel(input: Any, replica_group: ReplicaGroup, num_ranks: int) -> Any:
    """The tensors of all ranks behind each other along dimension 0: ``(rows * num_ranks, columns)``.

    Args:
        input: ``(rows, columns)``; equal shapes on all ranks.
        replica_group: ranks that exchange.
        num_ranks: in each list of the group.
    """
    rows, *columns = limits.shape("input", input, ("rows", "columns")).values()
    limits.between("num_ranks", num_ranks, 1, 1 << 16)
    gathered = _own((rows * num_ranks, *columns), input.dtype)
    ncc.all_gather(srcs=[_own_copy(input)], dsts=[gathered], replica_group=replica_group, collective_dim=0)
    return _returned(gathered)


@nki.jit
def reduce_scatter_hbm_kernel(input: Any, replica_group: ReplicaGroup, num_ranks: int) -> Any:
    """The sum over all ranks, of which each one gets its part of dimension 0: ``(rows / num_ranks, columns)``.

    Args:
        input: ``(rows, columns)``; equal shapes on all ranks, rows a multiple of `num_ranks`.
        replica_group: ranks that exchange.
        num_ranks: in each list of the group.
    """
    rows, *columns = limits.shape("input", input, ("rows", "columns")).values()
    limits.between("num_ranks", num_ranks, 1, rows)
    limits.multiple("rows of input", rows, num_ranks, "each rank gets as many")
    part = _own((rows // num_ranks, *columns), input.dtype)
    ncc.reduce_scatter(srcs=[_own_copy(input)], dsts=[part], replica_group=replica_group, collective_dim=0, op=nl.add)
    return _returned(part)


@nki.jit
def all_to_all_hbm_kernel(input: Any, replica_group: ReplicaGroup) -> Any:
    """Part i of dimension 0 goes to rank i of the list, and part i of the result comes from it.

    Args:
        input: dimension 0 has as many parts as the lists have ranks; equal shapes on all ranks.
        replica_group: ranks that exchange.
    """
    exchanged = _own(input.shape, input.dtype)
    ncc.all_to_all(srcs=[_own_copy(input)], dsts=[exchanged], replica_group=replica_group, collective_dim=0)
    return _returned(exchanged)


@nki.jit
def rank_id_kernel(in_tensor: Any) -> Any:
    """Row ``rank`` of a tensor ``(ranks, columns)``, as ``(1, columns)``; a register says which rank this is."""
    columns = limits.shape("in_tensor", in_tensor, ("ranks", "columns"))["columns"]
    return _row(in_tensor, ncc.rank_id(), columns)


@nki.jit
def dma_copy_rank_id_kernel(in_tensor: Any, rank_id_lookup: Any) -> Any:
    """Row ``rank_id_lookup[rank]`` of a tensor ``(ranks, columns)``, as ``(1, columns)``, by way of a table.

    Args:
        in_tensor: ``(ranks, columns)``.
        rank_id_lookup: ``(ranks, 1)``, int32: the row of each rank. From SBUF it addresses the row.
    """
    sizes = limits.shape("in_tensor", in_tensor, ("ranks", "columns"))
    limits.shape("rank_id_lookup", rank_id_lookup, ("ranks", 1), sizes)
    limits.dtype("rank_id_lookup", rank_id_lookup, (nl.int32, nl.uint32))
    number = streaming.sbuf((1, 1), rank_id_lookup.dtype)
    nisa.dma_copy(dst=number, src=rank_id_lookup.select(0, ncc.rank_id()))
    return _row(in_tensor, number, sizes["columns"])


def _row(tensor: Any, number: Any, columns: int) -> Any:
    row = streaming.sbuf((1, columns), tensor.dtype)
    nisa.dma_copy(dst=row, src=tensor.select(0, number))
    result = streaming.result((1, columns), tensor.dtype)
    streaming.store(result, row)
    return result
