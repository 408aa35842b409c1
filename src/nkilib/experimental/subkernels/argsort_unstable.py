"""Indices that sort a row of numbers.

Math: the place of element i is the number of elements that come before it: those that are smaller, and of equal ones
those with a smaller index. ``out[place of i] = i``.

Layouts: data and result (1, N). Elements in tiles of 128 on partitions, each compared with the whole row along the free
dimension, in float32.

Limits: N <= 16,384; int32 below 2 ** 24, and no NaN, which has no place.

Engines: Vector compares and counts, which bounds it; DMA scatters indices to their places. Two cores have half of the
elements each. Equal elements keep their order, though callers may not count on it.
Source: argsort-unstable.rst of the published library; a sort by counting comparisons (Knuth, volume 3, 5.2,
algorithm C).
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.utils.stream_shuffle_broadcast import stream_shuffle_broadcast
from nkilib.streaming import sbuf, size


@nki.jit
def argsort_unstable(data: nl.NkiTensor, descending: bool = False, output_in_sbuf: bool = False) -> nl.NkiTensor:
    """Indices of the elements in ascending order, or in descending order.

    Args:
        data: (1, N), int32 or float32, in HBM or SBUF.
        descending: the largest element comes first.
        output_in_sbuf: the result is a tile in SBUF; every core has all of it then.

    Returns:
        (1, N), uint32.
    """
    limits.shape("data", data, (1, "N"))
    limits.dtype("data", data, (nl.int32, nl.float32))
    count = data.shape[1]
    limits.between("N", count, 1, 16_384, "a partition holds the row, and numbers of its elements")
    out = nl.ndarray((1, count), dtype=nl.uint32, buffer=nl.private_hbm if output_in_sbuf else nl.shared_hbm)
    row = repeated_row(data)
    for part in streaming.spans(count, nl.tile_size.pmax, shared=not output_in_sbuf):
        places, index = places_of(row, column_of(data, part), part.start, descending), sbuf((size(part), 1), nl.uint32)
        nisa.iota(dst=index, pattern=[[0, 1]], offset=part.start, channel_multiplier=1)
        nisa.dma_copy(dst=out.reshape((count, 1)).vector_select(0, places), src=index)
    if output_in_sbuf:
        return streaming.load(out)
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


def repeated_row(data: Any) -> Any:
    """A row (1, N) on every partition, in float32."""
    if data.buffer != nl.sbuf:
        return streaming.load_repeated(data, nl.tile_size.pmax, nl.float32)
    row, repeated = sbuf(data.shape, nl.float32), sbuf((nl.tile_size.pmax, data.shape[1]), nl.float32)
    nisa.tensor_copy(dst=row, src=data)
    stream_shuffle_broadcast(row, repeated)
    return repeated


def column_of(data: Any, part: slice) -> Any:
    """Some elements of a row (1, N), each on a partition, in float32."""
    column, found = sbuf((size(part), 1), data.dtype), sbuf((size(part), 1), nl.float32)
    streaming.copy(column, data[:, part])
    nisa.tensor_copy(dst=found, src=column)
    return found


def places_of(row: Any, column: Any, first: int, descending: bool = False) -> Any:
    """For each element of a column how many elements of the row come before it, (elements, 1) uint32.

    Args:
        row: (128, N) in float32, the same on every partition.
        column: (elements, 1) in float32: those of the row from `first` on.
    """
    elements, count = column.shape[0], row.shape[1]
    last, every = first + elements, slice(0, elements)
    less, equally = (nl.greater, nl.greater_equal) if descending else (nl.less, nl.less_equal)
    within = _diagonal(row[every, first:last], column, less)
    counts = [within]
    for part, op in ((slice(0, first), equally), (slice(last, count), less)):
        if size(part):
            counts.append(sbuf((elements, 1), nl.float32))
            nisa.tensor_scalar_reduce(
                dst=sbuf((elements, size(part)), nl.bfloat16),
                data=row[every, part],
                op0=op,
                operand0=column,
                reduce_op=nl.add,
                reduce_res=counts[-1],
            )
    places = sbuf((elements, 1), nl.uint32)
    for each in counts[1:]:
        nisa.tensor_tensor(dst=within, data1=within, data2=each, op=nl.add)
    nisa.tensor_copy(dst=places, src=within)
    return places


def _diagonal(row: Any, column: Any, less: Any) -> Any:
    """How many elements of a row come before each of a column, (elements, 1), where both are the same elements."""
    before, total = sbuf(row.shape, nl.float32), sbuf(column.shape, nl.float32)
    nisa.memset(dst=before, value=1.0)
    nisa.affine_select(
        dst=before,
        pattern=[[-1, row.shape[1]]],
        offset=0,
        channel_multiplier=1,
        cmp_op=nl.greater,
        on_true_tile=before,
        on_false_value=0.0,
    )
    for op, combine in ((nl.equal, nl.multiply), (less, nl.add)):
        nisa.scalar_tensor_tensor(dst=before, data=row, op0=op, operand0=column, op1=combine, operand1=before)
    nisa.tensor_reduce(dst=total, op=nl.add, data=before, axis=(1,))
    return total
