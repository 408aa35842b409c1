"""Copies between any partitions."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa

_STARTS = ((32, (0, 32, 64, 96)), (64, (0, 64)), (128, (0,)))
"""Partitions at which an engine's operand of at most so many partitions may start."""


def cross_partition_copy(
    src: Any,
    dst: Any,
    src_start_partition: int,
    dst_start_partition: int,
    num_partitions_to_copy: int,
    free_dim_size: int,
) -> None:
    """Copy partitions of one tile in SBUF to those of another one, wherever they start.

    Vector copies where both starts are among those that engines can address, DMA everywhere else.
    """
    source = src[src_start_partition : src_start_partition + num_partitions_to_copy, 0:free_dim_size]
    target = dst[dst_start_partition : dst_start_partition + num_partitions_to_copy, 0:free_dim_size]
    starts = next(allowed for most, allowed in _STARTS if num_partitions_to_copy <= most)
    if src_start_partition in starts and dst_start_partition in starts:
        nisa.tensor_copy(dst=target, src=source)
    else:
        nisa.dma_copy(dst=target, src=source)
