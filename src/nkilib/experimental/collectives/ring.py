"""A ring of ranks: every step passes a buffer on to the next rank, while the last one is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.collectives import ReplicaGroup
from nkilib import limits, streaming

_CHANNELS = {4: 2, 8: 2, 16: 2, 32: 2, 64: 4, 128: 4}
"""Channels between two devices that both cores of a logical core drive, by the number of ranks (fg-allgather.rst)."""


def group_of(ranks: int, groups: int) -> ReplicaGroup:
    """Lists of ranks that follow each other."""
    return ReplicaGroup([list(range(first, first + ranks)) for first in range(0, ranks * groups, ranks)])


def checked_channels(rows: int, ranks: int, kernel: str) -> int:
    """How many channels a ring has, for a number of rows that they and the cores of the launch can share.

    Raises:
        KernelLimit: an odd number of ranks (``nkilib.argument``), or rows that cannot be shared (``nkilib.shape``).
    """
    limits.need(
        ranks >= 2 and ranks % 2 == 0,
        "tp_degree",
        ranks,
        f"{kernel} passes two buffers round the ring, so that the number of ranks is even",
        "use nkilib.experimental.collectives.allgather_sb2sb for an odd number of ranks",
    )
    channels = _CHANNELS.get(ranks, 1) if nl.num_programs(0) == 2 else 1
    limits.multiple("rows of lhs", rows, nl.num_programs(0) * channels, "cores and channels have as many each")
    return channels


def places(ranks: int, groups: int) -> Any:
    """A table in HBM: the place of each rank in its list."""
    return nl.shared_constant(np.arange(ranks * groups, dtype=np.int32).reshape(-1, 1) % ranks)


def steps(buffer: list[Any], group: ReplicaGroup, table: Any, ranks: int) -> Iterator[tuple[Any, list[Any]]]:
    """Of each step of the ring the place of the rank whose buffer is here, and the buffer, beginning with this rank's.

    Args:
        buffer: a tensor for each channel, which is sent; all in SBUF or all in HBM.
        table: of `places`.
    """
    channels = list(range(len(buffer)))
    for step in range(ranks):
        rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group)
        place = streaming.sbuf((1, 1), nl.int32)
        nisa.dma_copy(dst=place, src=table.select(0, rank))
        if step + 1 < ranks:
            received = [nl.ndarray(each.shape, dtype=each.dtype, buffer=each.buffer) for each in buffer]
            ncc.collective_permute_implicit([[each] for each in buffer], [[each] for each in received], group, channels)
            yield place, buffer
            buffer = received
        else:
            yield place, buffer
