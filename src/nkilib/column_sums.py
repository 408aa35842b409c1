"""Sums over all rows of a matrix, which the Tensor engine adds up in PSUM while the rows go by."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.streaming import ceil_div, psum, sbuf, size, spans, store, transpose

_PIPE = 0
"""The cores' exchange of their sums; all are of this kind, and follow each other in the same order."""


class ColumnSums:
    """``sum of weight * row`` over rows of at most 65,536 columns, in float32; a column of PSUM holds 128 of them."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._total = psum((nl.tile_size.pmax, ceil_div(columns, nl.tile_size.pmax)))
        self._begun: set[int] = set()

    def add(self, tile: Any, weights: Any, first: int = 0) -> None:
        """Add rows.

        Args:
            tile: (rows, columns) in SBUF, at most 128 rows.
            weights: (rows, 1) in SBUF, a number for each row, in the dtype of the tile.
            first: number of the tile's first column, a multiple of 128.
        """
        for part in spans(tile.shape[1], nl.tile_size.pmax):
            place = (first + part.start) // int(nl.tile_size.pmax)
            into = self._total[: size(part), place : place + 1]
            nisa.nc_matmul(dst=into, stationary=tile[:, part], moving=weights, accumulate=place in self._begun)
            self._begun.add(place)

    def store(self, target: Any) -> None:
        """The sums of the rows of all cores, into a tensor of HBM with one dimension; on every core, once."""
        sums = sbuf(self._total.shape, nl.float32)
        if self._columns % nl.tile_size.pmax or not self._begun:
            nisa.memset(dst=sums, value=0.0)  # the last column is not full, or this core had no rows
        whole = self._columns // int(nl.tile_size.pmax) if self._begun else 0
        rest = self._columns % int(nl.tile_size.pmax) if self._begun else 0
        if whole:
            nisa.tensor_copy(dst=sums[:, :whole], src=self._total[:, :whole])
        if rest:
            nisa.tensor_copy(dst=sums[:rest, whole : whole + 1], src=self._total[:rest, whole : whole + 1])
        if nl.num_programs(0) > 1:
            sums = _of_both_cores(sums)
        if nl.program_id(0) == 0:
            for places in spans(sums.shape[1], nl.tile_size.pmax):
                self._store(transpose(sums[:, places]), target, places.start)

    def _store(self, rows: Any, target: Any, start: int) -> None:
        """Rows of 128 columns each, of which the last one may have less."""
        wide = int(nl.tile_size.pmax)
        left = self._columns - start * wide
        converted = sbuf(rows.shape, target.dtype)
        nisa.tensor_copy(dst=converted, src=rows)
        whole = min(rows.shape[0], left // wide)
        first = start * wide
        if whole:
            store(target[first : first + whole * wide].reshape((whole, wide)), converted[:whole])
        if whole < rows.shape[0]:
            store(
                target[first + whole * wide :].reshape((1, left - whole * wide)),
                converted[whole:, : left - whole * wide],
            )


def _of_both_cores(sums: Any) -> Any:
    other = sbuf(sums.shape, sums.dtype)
    peer = 1 - nl.program_id(0)
    nisa.sendrecv(src=sums, dst=other, send_to_rank=peer, recv_from_rank=peer, pipe_id=_PIPE)
    total = sbuf(sums.shape, sums.dtype)
    # in one order on both cores, so that they have the same bits
    first, second = (sums, other) if peer == 1 else (other, sums)
    nisa.tensor_tensor(dst=total, data1=first, data2=second, op=nl.add)
    return total
