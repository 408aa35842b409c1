"""Striped parts of a sequence as parts that follow each other: what comes after striped ring attention.

Rank r of n comes with the positions r, r + n, r + 2n, ..., and leaves with its n-th of the sequence. Every rank has an
n-th of that, so that one exchange of as many bytes as a rank has brings all of it, and none that it does not need.

DMA loads rows of each rank in long runs, Vector puts them in turns, and DMA stores rows of all ranks in long runs. The
links bound it, then DMA.

Source: ring-attention-unpermute.rst of the published library, which gathers everything instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib import streaming as st
from nkilib.experimental.attention import ranks

_LINE_BYTES = 16384
"""Of a partition, that hold rows of all ranks in turns."""


@nki.jit
def ring_attention_unpermute(x: nl.NkiTensor, replica_groups: Any = None, num_workers: int = 1) -> nl.NkiTensor:
    """This rank's part of the sequence.

    Args:
        x: (batch, places, d) of any dtype: every `num_workers`-th place of the sequence, from this rank's on; their
            number is a multiple of `num_workers`.
        replica_groups: lists of ranks in their order; by default one of all.
        num_workers: ranks of a list.

    Returns:
        (batch, places, d): as many places that follow each other.

    Raises:
        KernelLimit: ``nkilib.shape`` or ``nkilib.argument``.
    """
    batch, count, d = limits.shape("x", x, ("batch", "places", "d")).values()
    limits.between("num_workers", num_workers, 1, 1 << 16)
    limits.multiple("places", count, num_workers, "each rank has as many of each other rank's part")
    most = _LINE_BYTES // x.dtype.itemsize
    limits.between("num_workers * d", num_workers * d, 1, most, "a partition holds a row of each rank")
    group = ranks.group_of(replica_groups, num_workers)
    out = st.result(x.shape, x.dtype)
    each, cores, core = count // num_workers, nl.num_programs(0), nl.program_id(0)
    mine = slice(each * core // cores, each * (core + 1) // cores)
    if st.size(mine):
        striped = _exchanged(x.reshape((batch, num_workers, each, d))[:, :, mine, :], group)
        whole = out.reshape((batch, each, num_workers * d))[:, mine, :]
        for row in range(batch):
            _in_turns(striped[:, row], whole[row])
    return out


def _exchanged(parts: Any, group: Any) -> Any:
    """Of (batch, ranks, rows, d) the rows that each rank has for this one, (ranks, batch, rows, d)."""
    batch, count, rows, d = parts.shape
    sent, received = (nl.ndarray((count, batch, rows, d), dtype=parts.dtype, buffer=nl.private_hbm) for _ in range(2))
    st.copy(sent, parts.permute((1, 0, 2, 3)))
    ncc.all_to_all(srcs=[sent], dsts=[received], replica_group=group, collective_dim=0)
    return received


def _in_turns(striped: Any, whole: Any) -> None:
    """Rows (ranks, rows, d) into (rows, ranks * d)."""
    count, rows, d = striped.shape
    most = max(1, _LINE_BYTES // (count * d * striped.dtype.itemsize))
    for start, lines, width in _lines(rows, most):
        here = slice(start, start + lines * width)
        source = striped[:, here, :].reshape((count, lines, width * d)).permute((1, 0, 2))
        loaded, turned = st.load(source), st.sbuf((lines, width, count, d), striped.dtype)
        each = loaded.reshape((lines, count, width, d)).permute((0, 2, 1, 3))
        nisa.tensor_copy(dst=turned, src=each)
        st.store(whole[here, :].reshape((lines, width * count * d)), turned.reshape((lines, width * count * d)))


def _lines(rows: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Rectangles of rows: the first row, lines of at most 128, and rows of each line."""
    width = min(most, st.ceil_div(rows, nl.tile_size.pmax))
    for part in st.spans(rows, nl.tile_size.pmax * width):
        lines, rest = divmod(st.size(part), width)
        if lines:
            yield part.start, lines, width
        if rest:
            yield part.stop - rest, 1, rest
