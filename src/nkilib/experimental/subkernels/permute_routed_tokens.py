"""Tokens in the order of the experts that they chose, ready to be sent to other ranks.

Math: the T * K choices, sorted by expert; a row for each: ``[hidden state of its token, affinity, number of the
token]``. Choices of one expert stay in order.

Layouts: hidden states (T, columns) in 16 or 8 bits; rows (T * K, columns + 3) or (T * K, columns + 6) of their dtype.
An affinity is a bfloat16 and a number an int32, whose bits lie in columns.

Limits: K <= 128, T * K <= 16,384.

Engines: Vector counts how many choices come before each one, and DMA repeats hidden states and scatters rows.
Source: permute-routed-tokens.rst of the published library.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.subkernels.argsort_unstable import column_of, places_of, repeated_row
from nkilib.streaming import sbuf, size

_DTYPES = (nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2)


@nki.jit
def permute_routed_tokens(
    hidden_input: nl.NkiTensor, expert_index: nl.NkiTensor, expert_affinities_masked: nl.NkiTensor
) -> nl.NkiTensor:
    """A row for each choice, sorted by expert.

    Args:
        hidden_input: (T, columns) in HBM; in 8 bits with columns of scales, which move along.
        expert_index: (T, K), int32 in HBM.
        expert_affinities_masked: (T, E), bfloat16 in HBM.

    Returns:
        (T * K, columns + 3), or + 6 in 8 bits, in HBM.
    """
    limits.dtype("hidden_input", hidden_input, _DTYPES)
    limits.dtype("expert_index", expert_index, (nl.int32,))
    limits.dtype("expert_affinities_masked", expert_affinities_masked, (nl.bfloat16,))
    sizes = limits.shape("hidden_input", hidden_input, ("T", "columns"))
    limits.shape("expert_index", expert_index, ("T", "K"), sizes)
    limits.shape("expert_affinities_masked", expert_affinities_masked, ("T", "E"), sizes)
    tokens, k = expert_index.shape
    limits.between("K", k, 1, nl.tile_size.pmax, "the choices of a token lie on partitions together")
    limits.between("T * K", tokens * k, 1, 16_384, "a partition holds all choices")
    width, each = hidden_input.shape[1], 2 // hidden_input.dtype.itemsize
    out = streaming.result((tokens * k, width + 3 * each), hidden_input.dtype)
    choices = expert_index.reshape((1, tokens * k))
    row = repeated_row(choices)
    for part in streaming.spans(tokens, nl.tile_size.pmax // k, shared=True):
        chosen = slice(part.start * k, part.stop * k)
        places = places_of(row, column_of(choices, chosen), chosen.start)
        tile = sbuf((size(chosen), out.shape[1]), out.dtype)
        repeated = hidden_input[part].expand_dim(1).broadcast(1, k)
        streaming.copy(tile[:, 0:width], repeated)
        affinity, number = _affinities(expert_affinities_masked, expert_index, part), _numbers(part, k)
        nisa.tensor_copy(dst=tile[:, width : width + each], src=affinity.view(out.dtype))
        nisa.tensor_copy(dst=tile[:, width + each :], src=number.view(out.dtype))
        nisa.dma_copy(dst=out.vector_select(0, places), src=tile)
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


def _numbers(tokens: slice, k: int, times: int = 1) -> Any:
    """A multiple of the number of each choice's token, (choices, 1) int32."""
    table = sbuf((size(tokens), k), nl.int32)
    nisa.iota(dst=table, pattern=[[0, k]], offset=tokens.start * times, channel_multiplier=times)
    return _column(table)


def _column(table: Any) -> Any:
    """A table (tokens, K) with each element on a partition, (tokens * K, 1)."""
    column = sbuf((table.shape[0] * table.shape[1], 1), table.dtype)
    streaming.copy(column, table)
    return column


def _affinities(affinities: Any, index: Any, tokens: slice) -> Any:
    """The affinity of each choice, (choices, 1) bfloat16."""
    (_, experts), k = affinities.shape, index.shape[1]
    first, places = _numbers(tokens, k, experts), sbuf((size(tokens) * k, 1), nl.int32)
    chosen = sbuf(places.shape, nl.int32)
    streaming.copy(chosen, index[tokens])
    nisa.tensor_tensor(dst=places, data1=first, data2=chosen, op=nl.add)
    found = sbuf(places.shape, affinities.dtype)
    every = affinities.reshape((affinities.size, 1))
    nisa.dma_copy(dst=found, src=every.vector_select(0, places))
    return found
