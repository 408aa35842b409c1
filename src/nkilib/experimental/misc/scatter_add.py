"""Rows added to those that indices choose: ``input[index[k]] += src[k]`` for all k, in place.

Shapes: input (N, D), index (K,), src (K, D). dtypes: float32, bfloat16 or float16, both the same; sums of rows with the
same index are float32 within 128 rows, and round once for each 128.

Plan: of 128 rows at a time, Tensor adds up those with the same index, by a product with the matrix that says which are
alike; DMA gathers the rows of the input, Vector adds, and DMA scatters them, equal rows to equal places. 128 rows wait
for the 128 before them, whose latency bounds it. Two cores share the columns, so that none waits for the other.

Source: nki/library/api/scatter-add.rst; rows that repeat within 128 are added up here, which it leaves out.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.experimental.misc.gather import check
from nkilib.streaming import load, load_repeated, psum, sbuf, size, spans, store

_FLOATS = (nl.float32, nl.bfloat16, nl.float16)

_EXACT = 1 << 24
"""Indices below are exact in float32, in which they are compared."""

_COLUMNS = 4096
"""Of the rows that are added at once."""


@nki.jit
def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Any:
    """Add rows to those that indices choose.

    Args:
        input: (N, D), which the kernel writes to.
        dim: 0.
        index: (K,) of int32 or uint32, from 0 to N - 1; they may repeat. Others are an error while the kernel runs.
        src: (K, D), of the dtype of the input.

    Returns:
        The input.

    Raises:
        KernelLimit: shapes or dtypes that do not fit, or more than 16,777,216 rows.
    """
    sizes = check(input, dim, index)
    limits.shape("src", src, ("K", "D"), sizes)
    limits.dtype("input", input, _FLOATS)
    limits.same_dtype(input=input, src=src)
    limits.between("N", sizes["N"], 1, _EXACT, "indices are compared in float32")
    cores, core = nl.num_programs(0), nl.program_id(0)
    mine = slice(sizes["D"] * core // cores, sizes["D"] * (core + 1) // cores)
    for rows in spans(sizes["K"], nl.tile_size.pmax):
        chosen = load(index[rows])
        alike = _alike(index[rows], chosen, src.dtype)
        for part in spans(size(mine), _COLUMNS):
            columns = slice(mine.start + part.start, mine.start + part.stop)
            places = input[:, columns].vector_select(0, chosen)
            store(places, _added(load(src[rows, columns]), alike, places))
    return input


def _alike(index: Any, chosen: Any, dtype: Any) -> Any:
    """``(rows, rows)``: 1 where two indices are the same, else 0."""
    count = index.shape[0]
    across, down = sbuf((count, count), nl.float32), sbuf((count, 1), nl.float32)
    nisa.tensor_copy(dst=across, src=load_repeated(index, count))
    nisa.tensor_copy(dst=down, src=chosen)
    same = sbuf((count, count), dtype)
    nisa.tensor_scalar(dst=same, data=across, op0=nl.equal, operand0=down)
    return same


def _added(rows: Any, alike: Any, places: Any) -> Any:
    """Rows of the input with all that is added to them, those with the same index the same."""
    old = sbuf(rows.shape, rows.dtype)
    nisa.dma_copy(dst=old, src=places)
    for part in spans(rows.shape[1], nl.tile_size.psum_bank_fmax):
        sums = psum((rows.shape[0], size(part)))
        nisa.nc_matmul(dst=sums, stationary=alike, moving=rows[:, part])
        nisa.tensor_tensor(dst=old[:, part], data1=old[:, part], data2=sums, op=nl.add)
    return old
