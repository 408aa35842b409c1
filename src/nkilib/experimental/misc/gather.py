"""Rows of a matrix that indices choose: ``out[k] = input[index[k]]``.

Shapes: input (N, D), index (K,), out (K, D). dtypes: any; indices are int32 or uint32.

Plan: DMA reads each row from where its index says, 128 rows at a time, and nothing is computed. Several rows that
follow each other in the result share a partition, so that one transfer loads their indices and one stores them. DMA
bounds it.

Source: nki/library/api/gather.rst.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.rows import row_blocks
from nkilib.streaming import load, result, sbuf, size, spans, store

INDICES = (nl.int32, nl.uint32)
"""dtypes of indices."""

COLUMN_BYTES = 64 * 1024
"""Of a row that are in SBUF at once."""


@nki.jit
def gather(input: Any, dim: int, index: Any) -> Any:
    """Gather rows.

    Args:
        input: (N, D).
        dim: 0.
        index: (K,), from 0 to N - 1; others are an error while the kernel runs.

    Returns:
        (K, D), of the dtype of the input.

    Raises:
        KernelLimit: another rank, dtype of the index, dimension, or a target without DMA by index.
    """
    sizes = check(input, dim, index)
    out = result((sizes["K"], sizes["D"]), input.dtype)
    column = index.reshape((sizes["K"], 1))
    for block in row_blocks(sizes["K"], sizes["D"] * input.dtype.itemsize):
        rows = load(block.of(column))
        for part in spans(sizes["D"], COLUMN_BYTES // input.dtype.itemsize):
            tile = sbuf((block.partitions, block.each, size(part)), input.dtype)
            for number in range(block.each):
                nisa.dma_copy(dst=tile[:, number, :], src=input[:, part].vector_select(0, rows[:, number, :]))
            store(block.of(out[:, part]), tile)
    return out


def check(input: Any, dim: int, index: Any) -> dict[str, int]:
    """The sizes N, D and K.

    Raises:
        KernelLimit: as `gather`.
    """
    limits.generation("DMA by index", 3, "older ones take an address for each row")
    sizes = limits.shape("input", input, ("N", "D"))
    limits.shape("index", index, ("K",), sizes)
    limits.dtype("index", index, INDICES)
    limits.one_of("dim", dim, (0,))
    return sizes
