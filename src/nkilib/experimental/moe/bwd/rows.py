"""Gradients of each token: those of its hidden state and of its affinity to the block's expert."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.moe.moe_cte.block import Share, missing, rows_of
from nkilib.core.moe.moe_cte.blockwise import rows_so_far
from nkilib.experimental.moe.bwd.inner import Inner
from nkilib.experimental.moe.bwd.job import Job, Tokens, turned_weights
from nkilib.streaming import Panel, columns_of, sbuf, size


def add_rows(job: Job, share: Share, tokens: Tokens, inner: Inner) -> None:
    """Add a block's part to the gradients of its tokens' hidden states."""
    layer, block = job.layer, tokens.block
    height, tiles = block.ids.shape
    results = rows_so_far(layer, share, block, job.hidden)
    panels = _both_halves(share, inner)
    weights = layer.gate_up.select(0, block.expert)
    for across in streaming.spans(size(share.columns), nl.tile_size.psum_bank_fmax):
        here = slice(share.columns.start + across.start, share.columns.start + across.stop)
        pairs: list[tuple[Any, Any]] = []
        for which in range(2):
            for middle, gradients in panels:
                turned = turned_weights(weights[here, which, middle])
                pairs += zip(gradients[which], turned, strict=True)
        for tile in range(tiles):
            part = slice(tile * height, (tile + 1) * height)
            total = streaming.psum((height, size(across)))
            left, right = columns_of([pair[0] for pair in pairs], part), [pair[1] for pair in pairs]
            streaming.contract(left, right, total)
            _finish(results[tile][:, across], total, layer.accumulating)
    for tile, result in enumerate(results):
        nisa.dma_copy(dst=rows_of(job.hidden, block.ids, tile, share.columns), src=result, oob_mode=missing(layer))


def _finish(into: Any, sums: Any, accumulating: bool) -> None:
    if accumulating:
        nisa.tensor_tensor(dst=into, data1=sums, data2=into, op=nl.add)
    else:
        nisa.tensor_copy(dst=into, src=sums)


def _both_halves(share: Share, inner: Inner) -> list[tuple[slice, tuple[Panel, Panel]]]:
    """This core's columns of the intermediate dimension with their gradients, and the other core's."""
    own = [(share.middle, (inner.gate, inner.up))]
    if share.other is None:
        return own
    return [*own, (share.other, (_exchanged(inner.gate), _exchanged(inner.up)))]


def _exchanged(panel: Panel) -> Panel:
    """The other core's panel of the same shape, for this core's."""
    core, other = nl.program_id(0), [sbuf(piece.shape, piece.dtype) for piece in panel]
    for mine, theirs in zip(panel, other, strict=True):
        nisa.sendrecv(dst=theirs, src=mine, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    return other


def put_affinities(job: Job, share: Share, tokens: Tokens, inner: Inner) -> None:
    """The gradients of a block's affinities: each token's gradient times what its expert gave."""
    whole = job.gate_up_bias is not None and not job.layer.scale_intermediate
    columns = _from_results(job, share, tokens) if whole else _from_middle(tokens, inner)
    if nl.num_programs(0) > 1 and (whole or share.other is not None):
        other = _exchanged([columns])[0]
        nisa.tensor_tensor(dst=columns, data1=columns, data2=other, op=nl.add)
    if nl.program_id(0) > 0:
        return
    height, tiles = columns.shape
    target = job.affinities.reshape((job.affinities.size, 1))
    for tile in range(tiles):
        rows = target.ap([[1, height], [1, 1]], vector_offset=tokens.places[:, tile : tile + 1], indirect_dim=0)
        nisa.dma_copy(dst=rows, src=columns[:, tile : tile + 1], oob_mode=missing(job.layer))


def _from_middle(tokens: Tokens, inner: Inner) -> Any:
    """Sums over this core's part of the intermediate dimension, (height, tiles) in float32."""
    height, tiles = tokens.block.ids.shape
    columns = sbuf((height, tiles), nl.float32)
    ones = streaming.filled((inner.shares.shape[0], 1), nl.float32, 1.0)
    for tile in range(tiles):
        part = inner.shares[:, tile * height : (tile + 1) * height]
        total = streaming.contract([part], [ones], streaming.psum((height, 1)))
        nisa.tensor_copy(dst=columns[:, tile : tile + 1], src=total)
    return columns


def _from_results(job: Job, share: Share, tokens: Tokens) -> Any:
    """Sums over this core's columns of the results of the forward pass, (height, tiles) in float32."""
    height, tiles = tokens.block.ids.shape
    columns = sbuf((height, tiles), nl.float32)
    saved = job.layer.saved_down.select(0, tokens.block.number)
    for tile in range(tiles):
        result = streaming.load(saved[tile * height : (tile + 1) * height, share.columns])
        product = sbuf(result.shape, nl.float32)
        gradient = tokens.gradient[tile][:, share.columns]
        nisa.tensor_tensor(dst=product, data1=result, data2=gradient, op=nl.multiply)
        nisa.tensor_reduce(dst=columns[:, tile : tile + 1], op=nl.add, data=product, axis=(1,))
    return columns
