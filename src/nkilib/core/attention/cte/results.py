"""From sums of weighted values to the results of prefill attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Block
from nkilib.core.attention.cte.operands import FIXED, TILE

_LEAST = 2.0**-126
"""Sum of the weights of a query that sees no key, whose result is 0."""


def keep(block: Block, sums: Mapping[int, Any], shrink: Any, last: bool) -> None:
    """Add sums over a section of the keys to those before.

    Args:
        sums: in PSUM, by the number of the tile of queries.
        shrink: what earlier sums are multiplied by, ``(queries, 1)``, or None.
        last: whether no section follows, so that a result may be made from PSUM.
    """
    for place, before in block.totals.items():
        if place not in sums:
            continue
        block.totals[place] = total = st.sbuf(before.shape, nl.float32)
        if shrink is None:
            nisa.tensor_tensor(dst=total, data1=before, data2=sums[place], op=nl.add)
        else:
            nisa.scalar_tensor_tensor(
                dst=total, data=before, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=sums[place]
            )
    for place in sums.keys() - block.totals.keys():
        block.totals[place] = sums[place]
        if not last:
            block.totals[place] = st.sbuf(sums[place].shape, nl.float32)
            nisa.tensor_copy(dst=block.totals[place], src=sums[place])


def finish(block: Block) -> None:
    """Store the results of a block, and what its softmax was made of."""
    call, count = block.call, len(block.tiles)
    made = st.sbuf((TILE, count, call.features), call.out.dtype)
    kept = _column_of_tiles(block) if block.weights is None else block.weights
    sink = _sink_weight(block) if call.sink is not None else None
    for place, columns in enumerate(block.tiles):
        rows = st.size(columns)
        here = kept[0:rows, place : place + 1]
        _result(block, made[0:rows, place, :], block.totals.get(place), sink, here)
    _store(block, made)
    if call.sums is not None:
        _store_softmax(block, kept)


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


def _result(block: Block, made: Any, total: Any, sink: Any, kept: Any) -> None:
    """The result of a tile of queries from its sums, ``(queries, d + 1)``.

    Args:
        kept: gets the sum of the weights, or its inverse, ``(queries, 1)``.
    """
    call, (rows, features) = block.call, made.shape
    if total is None:
        total = st.filled((rows, features + 1), nl.float32, 0.0)
    weight, inverse = kept, st.sbuf((rows, 1), nl.float32)
    if call.sums is not None and call.normalized:
        weight, inverse = inverse, kept
    last = total[:, features : features + 1]
    if sink is not None:
        nisa.tensor_tensor(dst=weight, data1=sink[0:rows, :], data2=last, op=nl.add)
    else:
        nisa.tensor_scalar(dst=weight, data=last, op0=nl.maximum, operand0=_LEAST)
    if not call.normalized:
        nisa.tensor_copy(dst=made, src=total[:, 0:features])
        return
    nisa.reciprocal(dst=inverse, data=weight)
    if block.bias is None:  # Scalar is the busier one where the exponentials of all scores are its only work
        nisa.tensor_scalar(dst=made, data=total[:, 0:features], op0=nl.multiply, operand0=inverse)
    else:
        nisa.activation(dst=made, op=nl.copy, data=total[:, 0:features], scale=inverse)


def _store(block: Block, made: Any) -> None:
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
    """The negated maximum of the scaled scores, and the sum of the weights or its inverse."""
    call, tile = block.call, block.start // TILE
    negated = block.bias
    if block.count < TILE:
        negated = _column_of_tiles(block)
        nisa.tensor_copy(dst=negated[0 : block.count, :], src=block.bias)
    for target, column in ((call.neg_max, negated), (call.sums, kept)):
        nisa.dma_copy(dst=target[block.head, :, tile : tile + 1], src=column, dge_mode=FIXED)
