"""Cumulative sums along the last dimension: ``out[..., i] = x[..., 0] + ... + x[..., i]``.

Layouts: any number of dimensions; all but the last are rows. Dtypes: bfloat16, float16, float32, and integers of up to
32 bits. Sums are float32 whatever the dtype, from the first element on, and each is rounded once; those of integers are
exact up to 2**24, and saturate. Limits: none; rows of any number and length.

Plan: rows lie on partitions, and Vector adds up one element per cycle in its accumulator registers, which keep the sum
from one piece of a row to the next; transfers bound the kernel. Rows that would leave most partitions empty are cut in
segments that lie on partitions of their own; what comes before a segment is a product of the segments' sums with a
triangle of ones, which Scalar adds. Integers of 32 bits, which that instruction does not take, are scanned at half the
rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, scalar_copies
from nkilib.rows import RowBlock, matrix, row_blocks
from nkilib.streaming import ceil_div, filled, load, psum, result, sbuf, size, spans, store

_COLUMNS = 2048
"""Of a row in one transfer."""
_SEGMENT = 16384
"""Columns of a segment at most: all of it stays in SBUF until what comes before it is known."""
_DTYPES = (nl.bfloat16, nl.float16, nl.float32, nl.int32, nl.uint32, nl.int16, nl.uint16, nl.int8, nl.uint8)


@nki.jit
def cumsum(x: nl.NkiTensor, axis: int = -1) -> nl.NkiTensor:
    """Sum up along the last dimension; the cores of the launch divide the rows.

    Args:
        x: in HBM.
        axis: -1, or the number of the last dimension.

    Returns:
        A tensor like `x`.

    Raises:
        KernelLimit: another axis, another dtype.
    """
    limits.one_of("axis", axis, (-1, len(x.shape) - 1))
    limits.dtype("x", x, _DTYPES)
    out = result(x.shape, x.dtype)
    flat, sums = matrix(x), matrix(out)
    rows, columns = flat.shape
    most = ceil_div(rows, nl.num_programs(0))
    segments = _segments(most, columns)
    if segments == 1:
        for block in row_blocks(rows, columns * x.dtype.itemsize):
            _sum_rows(block, flat, sums)
    else:
        earlier = load(nl.shared_constant(_earlier(segments)))
        for mine in spans(rows, most, shared=True):
            shape = (size(mine) * segments, columns // segments)
            _sum_segments(flat[mine].reshape(shape), sums[mine].reshape(shape), earlier)
    return out


def _segments(rows: int, columns: int) -> int:
    """In how many parts of the same length a row is cut, so that all of them fill the partitions; 1 if it is not."""
    return max(
        count
        for count in range(1, max(1, nl.tile_size.pmax // rows) + 1)
        if count == 1 or (columns % count == 0 and columns // count <= _SEGMENT)
    )


def _sum_rows(block: RowBlock, source: Any, target: Any) -> None:
    """Rows that have a partition to themselves, or a part of one; a long one goes through SBUF in pieces of columns."""
    before: Any = [None] * block.each
    for part in spans(source.shape[1], _COLUMNS):
        tile = load(block.of(source[:, part]))
        sums = sbuf(tile.shape, tile.dtype)
        for row in range(block.each):  # several only where there is one piece
            _add_up(tile[:, row], sums[:, row], before[row])
            before[row] = sums[:, row, -1:]
        store(block.of(target[:, part]), sums)


def _earlier(segments: int) -> np.ndarray:
    """Ones where the segment of a row of the matrix comes before that of the column, in the same row of the tensor."""
    of_one_row = np.triu(np.ones((segments, segments), np.float32), 1)
    return np.kron(np.eye(int(nl.tile_size.pmax) // segments, dtype=np.float32), of_one_row)


def _sum_segments(source: Any, target: Any, earlier: Any) -> None:
    """Rows that are cut in segments: (rows * segments, columns of a segment), one on each partition."""
    count, columns = source.shape
    sums = sbuf((count, columns), nl.float32)
    pieces = spans(columns, _COLUMNS)
    for part in pieces:
        _add_up(load(source[:, part]), sums[:, part], None if part.start == 0 else sums[:, part.start - 1 : part.start])
    before = psum((count, 1))
    nisa.nc_matmul(dst=before, stationary=earlier[:count, :count], moving=sums[:, columns - 1 : columns])
    for part in pieces:
        tile = sbuf((count, size(part)), target.dtype)
        scalar_copies.shifted(tile, sums[:, part], before)
        store(target[:, part], tile)


def _add_up(x: Any, into: Any, before: Any) -> None:
    """Cumulative sums of a piece (partitions, columns) of rows, which follows `before`, or begins the rows if None.

    The registers hold what came before unrounded; a scan, which has none, goes on from the last sum as it is stored.
    """
    if x.dtype not in (nl.int32, nl.uint32):
        command = nisa.reduce_cmd.reset_reduce if before is None else nisa.reduce_cmd.reduce
        nisa.tensor_scalar_cumulative(
            dst=into, src=x, op0=nl.multiply, imm0=1.0, op1=nl.add, imm1=None, reduce_cmd=command
        )
        return
    ones = filled((x.shape[0], 1), nl.float32, 1.0).broadcast(1, x.shape[1])
    start = 0.0 if before is None else before
    nisa.tensor_tensor_scan(dst=into, data0=ones, data1=x, initial=start, op0=nl.multiply, op1=nl.add)
