"""What `collectives` exchanges, in NumPy: arguments and results are lists with an array for each rank of one group."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]


def all_reduce_hbm_kernel_reference(input: Arrays, replica_group: Any) -> Arrays:
    """The sum on every rank."""
    return [np.stack(input).astype(np.float64).sum(axis=0)] * len(input)


def all_gather_hbm_kernel_reference(input: Arrays, replica_group: Any, num_ranks: int) -> Arrays:
    """All rows on every rank."""
    return [np.concatenate(input) for _ in range(num_ranks)]


def reduce_scatter_hbm_kernel_reference(input: Arrays, replica_group: Any, num_ranks: int) -> Arrays:
    """A part of the sum on each rank."""
    return list(np.split(np.stack(input).astype(np.float64).sum(axis=0), num_ranks))


def all_to_all_hbm_kernel_reference(input: Arrays, replica_group: Any) -> Arrays:
    """Part i of every rank on rank i."""
    parts = [np.split(each, len(input)) for each in input]
    return [np.concatenate([each[rank] for each in parts]) for rank in range(len(input))]


def rank_id_kernel_reference(in_tensor: Arrays) -> Arrays:
    """A rank's own row."""
    return [each[rank : rank + 1] for rank, each in enumerate(in_tensor)]


def dma_copy_rank_id_kernel_reference(in_tensor: Arrays, rank_id_lookup: Arrays) -> Arrays:
    """The row that the table has for a rank."""
    return [each[table[rank]] for rank, (each, table) in enumerate(zip(in_tensor, rank_id_lookup, strict=True))]
