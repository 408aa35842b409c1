"""Product of the gathered rows of all ranks with a rank's own columns: ``out[rank] = (lhs of that rank) @ rhs``.

The rows go round a ring, and are multiplied by the Tensor engine while the next step is under way: `rhs` stays in SBUF,
and what is exchanged is transposed already, so that a step needs products and stores alone. The slower of the two, a
step of the ring or the product of one rank's rows, bounds it (fgcc.rst).
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.collectives import ring

_SBUF_SHARE = 0.8
"""Part of SBUF that `rhs` and three buffers of the ring may take."""


@nki.jit
def allgather_compute_matmul(lhs: Any, rhs: Any, tp_degree: int, num_groups: int, force_hbm_cc: bool = False) -> Any:
    """The product of all ranks' rows with this rank's columns.

    Args:
        lhs: ``(m, K)``, bfloat16, float16 or float32; equal shapes on all ranks. Cores and channels share m evenly.
        rhs: ``(K, N)`` of the same dtype; it stays in SBUF, which limits K * N.
        tp_degree: ranks of a ring; even. Those of a ring follow each other.
        num_groups: rings.
        force_hbm_cc: exchange buffers in HBM, also where those of SBUF have room.

    Returns:
        ``(tp_degree, cores, channels, rows, N)`` if SBUF has room for the buffers and K is a multiple of 128, else
        ``(tp_degree, channels, cores, rows, N)``, with as many rows as make up m. Channels are those of
        `fine_grained_allgather`.
    """
    sizes = limits.shape("rhs", rhs, ("K", "N"), limits.shape("lhs", lhs, ("m", "K")))
    limits.dtype("lhs", lhs, (nl.bfloat16, nl.float16, nl.float32))
    limits.same_dtype(lhs=lhs, rhs=rhs)
    channels = ring.checked_channels(sizes["m"], tp_degree, "allgather_compute_matmul")
    cores, core = nl.num_programs(0), nl.program_id(0)
    rows = sizes["m"] // cores // channels
    on_chip = not force_hbm_cc and _fits(rows, sizes["K"], sizes["N"], channels, lhs.dtype)
    order = (cores, channels) if on_chip else (channels, cores)
    out = streaming.result((tp_degree, *order, rows, sizes["N"]), lhs.dtype)
    pieces = lhs.reshape((*order, rows, sizes["K"]))
    mine = [(core, channel) if on_chip else (channel, core) for channel in range(channels)]
    own = [_buffer(pieces[first, second], on_chip) for first, second in mine]
    right = streaming.load_panel(rhs)
    table = ring.places(tp_degree, num_groups)
    for place, buffers in ring.steps(own, ring.group_of(tp_degree, num_groups), table, tp_degree):
        for (first, second), buffer in zip(mine, buffers, strict=True):
            _multiply(_panel(buffer), right, out.select(0, place)[first, second])
    return out


def _fits(rows: int, inner: int, columns: int, channels: int, dtype: Any) -> bool:
    pieces = streaming.ceil_div(inner, nl.tile_size.pmax)
    taken = pieces * (columns + 3 * channels * rows) * dtype.itemsize
    return inner % nl.tile_size.pmax == 0 and bool(taken <= _SBUF_SHARE * nl.tile_size.sbuf_fmax_bytes)


def _buffer(piece: Any, on_chip: bool) -> Any:
    """Rows where they can be exchanged: transposed in SBUF, as (128, pieces of K, rows), or in HBM as they are."""
    rows, inner = piece.shape
    if not on_chip:
        own = nl.ndarray((rows, inner), dtype=piece.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=own, src=piece)
        return own
    buffer = streaming.sbuf((nl.tile_size.pmax, inner // nl.tile_size.pmax, rows), piece.dtype)
    for number, tile in enumerate(streaming.load_transposed(piece)):
        nisa.tensor_copy(dst=buffer[:, number, :], src=tile)
    return buffer


def _panel(buffer: Any) -> streaming.Panel:
    if nl.is_sbuf(buffer.buffer):
        return [buffer[:, number, :] for number in range(buffer.shape[1])]
    return streaming.load_transposed(buffer)


def _multiply(left: streaming.Panel, right: streaming.Panel, into: Any) -> None:
    """``into = left.T @ right`` in HBM."""
    rows, columns = into.shape
    for down, across in streaming.blocks(rows, columns):
        total = streaming.psum((streaming.size(down), streaming.size(across)))
        streaming.contract(streaming.columns_of(left, down), streaming.columns_of(right, across), total)
        tile = streaming.sbuf(total.shape, into.dtype)
        nisa.tensor_copy(dst=tile, src=total)
        streaming.store(into[down, across], tile)
