"""Gather of the columns of all ranks, from SBUF to SBUF: ``out[:, rank * W : (rank + 1) * W] = inp of that rank``.

A partition holds rows that follow each other, and a rank's elements go behind those of the others in the free
dimension: loads are contiguous, and the store puts them in order. An exchange has a latency of its own, so it takes as
many rows as SBUF has room for. DMA loads and stores, the collective queue exchanges; bytes over the links bound it.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.collectives as ncc
import nki.language as nl
from nki.collectives import ReplicaGroup
from nkilib import limits, streaming

_SBUF_SHARE = 0.4
"""Part of SBUF that an exchange may take, so that the next one is loaded meanwhile."""


@nki.jit
def allgather_sb2sb(inp: Any, replica_groups: ReplicaGroup, tp_degree: int) -> Any:
    """The columns of all ranks beside each other, for a tensor of one tile.

    Args:
        inp: ``(H, W)``, any dtype, H at most 128; equal shapes on all ranks.
        replica_groups: ranks that exchange.
        tp_degree: ranks in each list of the group.

    Returns:
        ``(H, W * tp_degree)``, the same on every rank.
    """
    height = limits.shape("inp", inp, ("H", "W"))["H"]
    limits.between("H", height, 1, nl.tile_size.pmax, "one tile; allgather_sb2sb_tiled takes more rows")
    return _gathered(inp, replica_groups, tp_degree)


@nki.jit
def allgather_sb2sb_tiled(inp: Any, replica_groups: ReplicaGroup, tp_degree: int) -> Any:
    """The columns of all ranks beside each other, for any number of rows, which the cores of a launch share.

    Args:
        inp: ``(M, K)``, any dtype; equal shapes on all ranks.
        replica_groups: ranks that exchange.
        tp_degree: ranks in each list of the group.

    Returns:
        ``(M, K * tp_degree)``, the same on every rank.
    """
    limits.shape("inp", inp, ("M", "K"))
    return _gathered(inp, replica_groups, tp_degree)


def _gathered(inp: Any, group: ReplicaGroup, ranks: int) -> Any:
    rows, columns = inp.shape
    limits.between("tp_degree", ranks, 1, 1 << 16)
    out = streaming.result((rows, columns * ranks), inp.dtype)
    for part in _parts(rows, columns * (1 + ranks) * inp.dtype.itemsize):
        count = min(streaming.size(part), nl.tile_size.pmax)
        each = streaming.size(part) // count
        own = streaming.load(inp[part, :].reshape((count, each * columns)))
        gathered = streaming.sbuf((count, ranks * each * columns), inp.dtype)
        ncc.all_gather(srcs=[own], dsts=[gathered], replica_group=group, collective_dim=1)
        ordered = out[part, :].reshape((count, each, ranks, columns)).permute((0, 2, 1, 3))
        streaming.store(ordered, gathered.reshape((count, ranks, each, columns)))
    return out


def _parts(rows: int, bytes_of_row: int) -> list[slice]:
    """Rows of each exchange of this core: 128 or a multiple of it while SBUF has room, and what is left."""
    whole = nl.tile_size.pmax
    most = max(1, int(_SBUF_SHARE * nl.tile_size.sbuf_fmax_bytes) // bytes_of_row)
    mine = streaming.spans(rows, whole, shared=True)
    full = [part for part in mine if streaming.size(part) == whole]
    groups = [full[first : first + most] for first in range(0, len(full), most)]
    return [slice(group[0].start, group[-1].stop) for group in groups] + mine[len(full) :]
