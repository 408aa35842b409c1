"""From sums of weighted values to the results of prefill attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Block
from nkilib.core.attention.cte.operands import FIXED, TILE

_LEAST = 2.0**-126
"""Sum of the weights of a query that sees no key, whose result is 0."""


def keep(block: Block, sums: Sequence[tuple[int, Any]], shrink: Any = None) -> None:
    """Add sums over a section of the keys to those before, in SBUF.

    Args:
        sums: in PSUM, ``(queries, tiles, d + 1)`` each, and the number of the first of these tiles of queries.
        shrink: what earlier sums are multiplied by, ``(queries, 1)``, or None.
    """
    first = block.totals is None
    if first:
        shape = min(block.count, TILE), len(block.tiles), block.call.features + 1
        block.totals = st.sbuf(shape, nl.float32)
        if sum(new.shape[0] * new.shape[1] for _, new in sums) < shape[0] * shape[1]:
            nisa.memset(dst=block.totals, value=0.0)
    for place, new in sums:
        here = block.totals[0 : new.shape[0], place : place + new.shape[1], :]
        if first:
            nisa.tensor_copy(dst=here, src=new)
        elif shrink is None:
            nisa.tensor_tensor(dst=here, data1=here, data2=new, op=nl.add)
        else:
            nisa.scalar_tensor_tensor(dst=here, data=here, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=new)


def finish(block: Block) -> None:
    """Store the results of a block, and what its softmax was made of."""
    call, totals = block.call, block.totals
    rows, count, _ = totals.shape
    features = call.features
    if call.stretch is not None:
        sums = totals[:, :, 0:features]
        nisa.tensor_tensor(
            dst=sums, data1=sums, data2=call.stretch[0:rows, :].expand_dim(1).broadcast(1, count), op=nl.multiply
        )
    weights = _column_of_tiles(block) if block.weights is None else block.weights
    inverses = _column_of_tiles(block)
    weight, inverse = weights[0:rows, :], inverses[0:rows, :]
    last = totals[:, :, features]
    if call.sink is None:
        nisa.tensor_scalar(dst=weight, data=last, op0=nl.maximum, operand0=_LEAST)
    else:
        nisa.tensor_scalar(dst=weight, data=last, op0=nl.add, operand0=_sink_weight(block))
    made = st.sbuf((rows, count, features), call.out.dtype)
    if call.normalized:
        nisa.reciprocal(dst=inverse, data=weight)
        for place in range(count):
            _scale(
                made[:, place, :], totals[:, place, 0:features], inverse[:, place : place + 1], block.bias is not None
            )
    else:
        nisa.tensor_copy(dst=made, src=totals[:, :, 0:features])
    put(block, made)
    if call.sums is not None:
        _store_softmax(block, inverses if call.normalized else weights)


def _scale(made: Any, total: Any, inverse: Any, maxima: bool) -> None:
    """Results from sums, by the engine that has less to do: without maxima Scalar computes most exponentials."""
    if maxima:
        nisa.activation(dst=made, op=nl.copy, data=total, scale=inverse)
    else:
        nisa.tensor_scalar(dst=made, data=total, op0=nl.multiply, operand0=inverse)


def _column_of_tiles(block: Block) -> Any:
    """A number for each query, ``(128, tiles)`` float32, and 0 where there is no query."""
    shape = TILE, len(block.tiles)
    return st.filled(shape, nl.float32, 0.0) if block.count % TILE else st.sbuf(shape, nl.float32)


def _sink_weight(block: Block) -> Any:
    """The weight of the sink for each query of a tile, ``(128, 1)``."""
    sink, rows = block.sink(), min(block.count, TILE)
    result = st.sbuf((rows, 1), nl.float32)
    if block.bias is None:
        nisa.activation(dst=result, op=nl.exp, data=sink[0:rows, :])
    else:
        nisa.activation(dst=result, op=nl.exp, data=sink[0:rows, :], bias=block.bias)
    return result


def put(block: Block, made: Any) -> None:
    """Results of a block into device memory, whole tiles at once."""
    call, out = block.call, block.of(block.call.out, not block.call.columns)
    if call.columns:
        turned = st.sbuf((call.features, block.count), call.out.dtype)
        for place, columns in enumerate(block.tiles):
            st.transpose(made[0 : st.size(columns), place, :], into=turned[:, columns])
        nisa.dma_copy(dst=out, src=turned, dge_mode=FIXED)
        return
    whole = block.count // TILE * TILE
    if whole > TILE:
        tiles = out[0:whole, :].reshape((whole // TILE, TILE, call.features)).permute((1, 0, 2))
        nisa.dma_copy(dst=tiles, src=made[:, 0 : whole // TILE, :], dge_mode=FIXED)
    for columns in block.tiles[0 if whole <= TILE else whole // TILE :]:
        rows, place = st.size(columns), columns.start // TILE
        nisa.dma_copy(dst=out[columns, :], src=made[0:rows, place, :], dge_mode=FIXED)


def _store_softmax(block: Block, kept: Any) -> None:
    """What was added to the scaled scores, and the sum of the weights or its inverse."""
    call, shape, added = block.call, (TILE, len(block.tiles)), block.bias
    if added is None:
        added = st.filled(shape, nl.float32, 0.0)
    elif block.count < TILE:
        added = _column_of_tiles(block)
        nisa.tensor_copy(dst=added[0 : block.count, :], src=block.bias)
    for target, column in ((call.neg_max, added), (call.sums, kept)):
        nisa.dma_copy(dst=_columns_of(block, target), src=column, dge_mode=FIXED)


def _columns_of(block: Block, target: Any) -> Any:
    """Tiles of a block in a tensor ``(heads, 128, tiles)``."""
    tile, count = block.start // TILE, len(block.tiles)
    if block.fixed:
        return target[block.head, :, tile : tile + count]
    tiles = target.shape[2]
    flat = target.reshape((target.shape[0] * TILE * tiles, 1))
    return flat.ap([[tiles, TILE], [1, count]], scalar_offset=block.head * (TILE * tiles) + tile)
