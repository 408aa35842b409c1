"""Which experts a token is scaled with, and how: affinities as the products want them."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.streaming import sbuf, size


def in_tiles(tensor: Any, dtype: Any) -> list[Any]:
    """Rows of HBM or SBUF in tiles of at most 128, of this dtype."""
    tiles = []
    for rows in streaming.spans(tensor.shape[0], nl.tile_size.pmax):
        tile = sbuf((size(rows), tensor.shape[1]), dtype)
        if tensor.buffer == nl.sbuf:
            nisa.tensor_copy(dst=tile, src=tensor)
        elif tensor.dtype == dtype:
            nisa.dma_copy(dst=tile, src=tensor[rows, :])
        else:
            nisa.tensor_copy(dst=tile, src=streaming.load(tensor[rows, :]))
        tiles.append(tile)
    return tiles


def of_rank(affinities: Any, index: Any, rank: Any, local: int, masked: bool) -> list[Any]:
    """Affinities to a rank's experts, (tokens, local) in float32 for each tile of tokens.

    Args:
        affinities: (T, E) in HBM.
        index: (T, K): experts that were chosen.
        rank: (1, 1) in HBM: the rank has experts from ``rank * local`` on.
        masked: affinities to experts that were not chosen are 0.
    """
    number = sbuf((1, 1), nl.int32)
    nisa.dma_copy(dst=number, src=rank.reshape((1, 1)).view(nl.int32))
    own = affinities.reshape((affinities.shape[0], affinities.shape[1] // local, local)).select(1, number)
    chosen = in_tiles(index, nl.float32) if masked else []
    tiles = []
    for place, rows in enumerate(streaming.spans(affinities.shape[0], nl.tile_size.pmax)):
        found = sbuf((size(rows), local), nl.float32)
        loaded = streaming.load(own[rows])
        nisa.tensor_copy(dst=found, src=loaded)
        tiles.append(_masked(found, _less(chosen[place], rank, local)) if masked else found)
    return tiles


def _less(index: Any, rank: Any, local: int) -> Any:
    """Numbers of experts, counted from the rank's first one."""
    first, counted = sbuf((index.shape[0], 1), nl.int32), sbuf(index.shape, nl.float32)
    nisa.dma_copy(dst=first, src=rank.reshape((1, 1)).view(nl.int32).broadcast(0, index.shape[0]))
    column = sbuf(first.shape, nl.float32)
    nisa.tensor_scalar(dst=column, data=first, op0=nl.multiply, operand0=float(local))
    nisa.tensor_scalar(dst=counted, data=index, op0=nl.subtract, operand0=column)
    return counted


def _numbers(tokens: int, experts: int) -> Any:
    """0, 1, 2, ... in each row, in float32."""
    numbers = sbuf((tokens, experts), nl.float32)
    nisa.iota(dst=numbers, pattern=[[1, experts]])
    return numbers


def _masked(values: Any, index: Any) -> Any:
    """Values (tokens, experts) of the experts whose numbers are in the row of (tokens, K), 0 elsewhere."""
    numbers = _numbers(*values.shape)
    total = None
    for slot in range(index.shape[1]):
        part = sbuf(values.shape, nl.float32)
        chosen = index[:, slot : slot + 1]
        nisa.scalar_tensor_tensor(
            dst=part, data=numbers, op0=nl.equal, operand0=chosen, op1=nl.multiply, operand1=values
        )
        if total is not None:
            nisa.tensor_tensor(dst=part, data1=part, data2=total, op=nl.maximum)
        total = part
    return total


def scattered(chosen: Any, index: Any, experts: int) -> Any:
    """(tokens, experts) in float32, with (tokens, K) values in the places of the chosen experts."""
    numbers = _numbers(index.shape[0], experts)
    total = None
    for slot in range(index.shape[1]):
        part = sbuf(numbers.shape, nl.float32)
        nisa.tensor_scalar(
            dst=part,
            data=numbers,
            op0=nl.equal,
            operand0=index[:, slot : slot + 1],
            op1=nl.multiply,
            operand1=chosen[:, slot : slot + 1],
        )
        if total is not None:
            nisa.tensor_tensor(dst=part, data1=part, data2=total, op=nl.add)
        total = part
    return total


def gathered(affinities: Any, index: Any) -> Any:
    """(tokens, K) in float32: of each token's affinities (tokens, E) those to the experts that it chose."""
    tokens, slots = index.shape
    numbers, found = _numbers(*affinities.shape), sbuf((tokens, slots), nl.float32)
    for slot in range(slots):
        part, chosen = sbuf(affinities.shape, nl.float32), index[:, slot : slot + 1]
        nisa.scalar_tensor_tensor(
            dst=part, data=numbers, op0=nl.equal, operand0=chosen, op1=nl.multiply, operand1=affinities
        )
        nisa.tensor_reduce(dst=found[:, slot : slot + 1], op=nl.add, data=part, axis=(1,))
    return found


def flat(tile: Any) -> Any:
    """All elements of a tile in the first partition, (1, n)."""
    row = sbuf((1, tile.shape[0] * tile.shape[1]), tile.dtype)
    nisa.dma_copy(dst=row, src=tile)
    return row
