"""The second product of a block, and the sum of what its tokens get."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import products, streaming
from nkilib.core.moe.moe_cte.block import Block, Share
from nkilib.core.moe.moe_cte.layer import Layer
from nkilib.stacks import Stack
from nkilib.streaming import sbuf, size


def add_last(layer: Layer, share: Share, block: Block, middle: Stack, results: list[Any]) -> None:
    """Add the second product of a block to the tiles of its tokens.

    Args:
        results: for each tile of at most 128 tokens (tokens, columns of this core) in SBUF.
    """
    weights = layer.down.select(0, block.expert)
    scale, bias = (
        None if every is None else _row(every.select(0, block.expert), share.columns)
        for every in (layer.down_scale, layer.down_bias)
    )
    for tokens, columns, sums in products.products(middle, weights, columns=share.columns):
        here = slice(columns.start - share.columns.start, columns.stop - share.columns.start)
        for op, row in ((nl.multiply, scale), (nl.add, bias)):
            sums = sums if row is None else _with_row(sums, op, row[0 : sums.shape[0], here])
        if layer.saved_down is not None:
            kept = sbuf(sums.shape, layer.saved_down.dtype)
            nisa.tensor_copy(dst=kept, src=sums)
            streaming.store(layer.saved_down.select(0, block.number)[tokens, columns], kept)
        tile = tokens.start // nl.tile_size.pmax
        _finish(layer, sums, block.affinities, tile, results[tile][:, here])


def _row(row: Any, columns: slice) -> Any:
    """A row of HBM on every partition, in float32."""
    repeated = sbuf((nl.tile_size.pmax, size(columns)), nl.float32)
    source = row[columns].reshape((1, size(columns))).broadcast(0, nl.tile_size.pmax)
    nisa.dma_copy(dst=repeated, src=source, dge_mode=nisa.dge_mode.swdge)
    return repeated


def _with_row(sums: Any, op: Any, row: Any) -> Any:
    result = sbuf(sums.shape, nl.float32)
    nisa.tensor_tensor(dst=result, data1=sums, data2=row, op=op)
    return result


def _finish(layer: Layer, sums: Any, affinities: Any, tile: int, into: Any) -> None:
    """Scale a part of the rows of a tile of tokens, and add it to what is there."""
    factor = affinities[0 : sums.shape[0], tile : tile + 1] if layer.scales_result else None
    if layer.accumulating and factor is not None:
        nisa.scalar_tensor_tensor(dst=into, data=sums, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=into)
    elif layer.accumulating:
        nisa.tensor_tensor(dst=into, data1=sums, data2=into, op=nl.add)
    elif factor is not None:
        nisa.tensor_scalar(dst=into, data=sums, op0=nl.multiply, operand0=factor)
    else:
        nisa.tensor_copy(dst=into, src=sums)
