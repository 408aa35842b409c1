"""The sum of a token's rows, which an all-to-all exchange left scattered in a buffer with gaps.

Math: ``output[t] = sum of input[r, :H] over the rows r whose number is t + token_base_index``. The number of a row is
an int32 in its last two 16-bit columns. A token has at most K rows; rows of other numbers are gaps.

Layouts: input (rows, H + 2) and output (T, H) in bfloat16 or float16; sums in float32. T in tiles of 128 on partitions.

Limits: K <= 8, H even, 8 to 16,384 rows, numbers below 2 ** 24.

Engines: Vector looks for the rows of each token in the numbers of all rows, K transfers gather them by DMA, and Vector
adds them up; the gathers bound it. Two cores have half of the columns each.
Source: topk-reduce.rst of the published library.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, products, streaming
from nkilib.core.utils.stream_shuffle_broadcast import stream_shuffle_broadcast
from nkilib.streaming import sbuf, size

_SLOTS = 8
"""Values that Vector finds at once."""

_COLUMNS = 2048
"""Columns that are gathered at once: while they are added up, the next ones are on their way."""


@nki.jit
def topk_reduce(input: nl.NkiTensor, T: int, K: int, token_base_index: int = 1) -> nl.NkiTensor:
    """The rows of each token, added up.

    Args:
        input: (rows, H + 2) in HBM.
        T: tokens.
        K: rows that a token has at most.
        token_base_index: number of the first token.

    Returns:
        (T, H) in HBM, of the dtype of `input`.
    """
    rows, width = input.shape
    limits.dtype("input", input, (nl.bfloat16, nl.float16))
    limits.multiple("H", width, 2, "a row ends with an int32, which begins at a multiple of 4 bytes")
    limits.between("H", width - 2, 2, 1 << 24)
    limits.between("T", T, 1, 1 << 24)
    limits.between("K", K, 1, _SLOTS, "Vector finds eight values at once")
    limits.between("rows", rows, _SLOTS, 16_384, "Vector searches so many numbers")
    out = streaming.result((T, width - 2), input.dtype)
    columns = products.own(width - 2, 2)
    numbers = _numbers(input, min(T, nl.tile_size.pmax))
    for tokens in streaming.spans(T, nl.tile_size.pmax):
        places = _places(numbers, tokens, token_base_index)
        for part in streaming.spans(size(columns), _COLUMNS):
            here = slice(columns.start + part.start, columns.start + part.stop)
            total = _sum(input, places, K, here)
            rounded = sbuf(total.shape, input.dtype)
            nisa.tensor_copy(dst=rounded, src=total, engine=nisa.engine.scalar)
            streaming.store(out[tokens, here], rounded)
    return out


def _numbers(source: Any, partitions: int) -> Any:
    """The numbers of all rows on every partition, (partitions, rows) int32: read once, and repeated from there."""
    rows, width = source.shape
    row = sbuf((1, rows), nl.int32)
    column = source.view(nl.int32)[:, width // 2 - 1 : width // 2]
    nisa.dma_transpose(dst=row, src=column, dge_mode=nisa.dge_mode.none)
    repeated = sbuf((partitions, rows), nl.int32)
    stream_shuffle_broadcast(row, repeated)
    return repeated


def _places(numbers: Any, tokens: slice, base: int) -> Any:
    """Rows of each token, (tokens, 8) uint32; all ones where there is none."""
    wanted, places = sbuf((size(tokens), _SLOTS), nl.uint32), sbuf((size(tokens), _SLOTS), nl.uint32)
    nisa.iota(dst=wanted, pattern=[[0, _SLOTS]], offset=base + tokens.start, channel_multiplier=1)
    nisa.nc_find_index8(dst=places, data=numbers[0 : size(tokens)], vals=wanted)
    return places


def _sum(source: Any, places: Any, slots: int, columns: slice) -> Any:
    """(tokens, columns) in float32: the rows in up to eight places of each token; what has no row counts as 0."""
    parts = []
    for slot in range(slots):
        row = sbuf((places.shape[0], size(columns)), source.dtype)
        nisa.memset(dst=row, value=0.0)
        rows = source[:, columns].vector_select(0, places[:, slot : slot + 1])
        nisa.dma_copy(dst=row, src=rows, oob_mode=nisa.oob_mode.skip)
        parts.append(row)
    while len(parts) > 1:  # neighbours; GpSimd adds the later ones, because Vector alone is slower than the gathers
        pairs = list(zip(parts[::2], parts[1::2], strict=False))
        rest = parts[2 * len(pairs) :]
        parts = [_added(*pair, by_gpsimd=2 * place > len(pairs)) for place, pair in enumerate(pairs)] + rest
    return parts[0]


def _added(first: Any, second: Any, *, by_gpsimd: bool) -> Any:
    total = sbuf(first.shape, nl.float32)
    engine = nisa.engine.gpsimd if by_gpsimd else nisa.engine.vector
    nisa.tensor_tensor(dst=total, data1=first, data2=second, op=nl.add, engine=engine)
    return total
