"""Gather of the rows of all ranks by a ring: ``out[rank] = lhs of that rank``.

Every rank passes a buffer on to the next one in each of ``tp_degree - 1`` steps, and stores what it got while the next
step is under way. DMA loads and stores, the collective queue exchanges; a rank's bytes over one link, once per step,
bound it (fg-allgather.rst). A partition holds rows that follow each other, which makes loads and stores contiguous and
needs no transpose.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.collectives import ring

_SBUF_SHARE = 3
"""Buffers that a third of SBUF each would do for: two are exchanged, and one is stored."""


@nki.jit
def fine_grained_allgather(lhs: Any, tp_degree: int, num_groups: int, force_hbm_cc: bool = False) -> Any:
    """The rows of all ranks.

    Args:
        lhs: ``(m, K)``, any dtype; equal shapes on all ranks. Cores and channels share m evenly.
        tp_degree: ranks of a ring; even. Those of a ring follow each other.
        num_groups: rings.
        force_hbm_cc: exchange buffers in HBM, also where those of SBUF have room.

    Returns:
        ``(tp_degree, cores, channels, rows, K)`` if SBUF has room for the buffers, else ``(tp_degree, channels, cores,
        rows, K)``, with as many rows as make up m. Channels are 1 on one core, on two cores 2, or 4 from 64 ranks on.
    """
    rows, columns = limits.shape("lhs", lhs, ("m", "K")).values()
    channels = ring.checked_channels(rows, tp_degree, "fine_grained_allgather")
    cores, core = nl.num_programs(0), nl.program_id(0)
    rows //= cores * channels
    on_chip = not force_hbm_cc and fits(rows, columns, channels, lhs.dtype)
    order = (cores, channels) if on_chip else (channels, cores)
    out = streaming.result((tp_degree, *order, rows, columns), lhs.dtype)
    pieces = lhs.reshape((*order, rows, columns))
    mine = [(core, channel) if on_chip else (channel, core) for channel in range(channels)]
    own = [_buffer(pieces[first, second], on_chip) for first, second in mine]
    table = ring.places(tp_degree, num_groups)
    for place, buffers in ring.steps(own, ring.group_of(tp_degree, num_groups), table, tp_degree):
        for (first, second), buffer in zip(mine, buffers, strict=True):
            target = out.select(0, place)[first, second]
            streaming.copy(target.reshape(buffer.shape), buffer)
    return out


def fits(rows: int, columns: int, channels: int, dtype: Any) -> bool:
    """Whether SBUF has room for the buffers of all channels."""
    per_partition = rows // partitions(rows) * columns * dtype.itemsize * channels
    return bool(per_partition * _SBUF_SHARE <= nl.tile_size.sbuf_fmax_bytes)


def partitions(rows: int) -> int:
    """The largest number of partitions that rows can be divided among evenly."""
    return max(count for count in range(1, min(rows, nl.tile_size.pmax) + 1) if rows % count == 0)


def _buffer(piece: Any, on_chip: bool) -> Any:
    """Rows of this rank where they can be exchanged: in SBUF, several to a partition, or in HBM of the kernel's own."""
    rows, columns = piece.shape
    if on_chip:
        count = partitions(rows)
        return streaming.load(piece.reshape((count, rows // count * columns)))
    own = nl.ndarray((rows, columns), dtype=piece.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=own, src=piece)
    return own
