"""What a backward pass is given, and what is loaded of a block of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.moe.moe_cte.block import Block, load_ids, missing, rows_of, turned_rows
from nkilib.core.moe.moe_cte.layer import Layer
from nkilib.experimental.moe.bwd.moe_bwd_parameters import ClampLimits
from nkilib.streaming import Panel, sbuf, size


@dataclass(frozen=True)
class Job:
    """Tensors in HBM.

    Attributes:
        layer: the forward pass; `saved_gate_up` and `saved_down` are read.
        gradient: of the result, (rows, H).
        hidden, affinities, gate_up, down: gradients of the layer's tensors, which are written.
        gate_up_bias, down_bias: gradients of biases, or None.
        clamps: of the forward pass.
    """

    layer: Layer
    gradient: Any
    hidden: Any
    affinities: Any
    gate_up: Any
    down: Any
    gate_up_bias: Any
    down_bias: Any
    clamps: ClampLimits


@dataclass(frozen=True)
class Tokens:
    """What is loaded of a block.

    Attributes:
        block: its ids, expert and affinities.
        places: (height, tiles) int32: where its affinities are.
        hidden, gradient: for each tile of tokens (height, H).
        turned: the gradient as a panel (H, B).
    """

    block: Block
    places: Any
    hidden: list[Any]
    gradient: list[Any]
    turned: Panel


def load_tokens(job: Job, number: int) -> Tokens:
    """Everything of a block that depends on no product."""
    layer = job.layer
    block, places = load_ids(layer, number)
    tiles = range(block.ids.shape[1])
    hidden = [_gathered(layer, layer.hidden, block.ids, tile) for tile in tiles]
    gradient = [_gathered(layer, job.gradient, block.ids, tile) for tile in tiles]
    turned = turned_rows(layer, job.gradient, block.ids)
    panel = _turned(gradient, layer.block) if turned is None else [turned[:, j, :] for j in range(turned.shape[1])]
    return Tokens(block, places, hidden, gradient, panel)


def _gathered(layer: Layer, source: Any, ids: Any, tile: int) -> Any:
    """(height, H): rows of one tile of tokens in the dtype of products; 0 for padding that is skipped."""
    found = sbuf((ids.shape[0], source.shape[1]), source.dtype)
    if layer.skip.skip_token:
        nisa.memset(dst=found, value=0.0)
    nisa.dma_copy(dst=found, src=rows_of(source, ids, tile, slice(0, source.shape[1])), oob_mode=missing(layer))
    return found


def _turned(tiles: list[Any], tokens: int) -> Panel:
    """Tiles (height, H) as a panel (H, tokens), by the Tensor engine."""
    height, columns = tiles[0].shape
    panel = []
    for part in streaming.spans(columns, nl.tile_size.pmax):
        piece = sbuf((size(part), tokens), tiles[0].dtype)
        for place, tile in enumerate(tiles):
            streaming.transpose(tile[:, part], into=piece[:, place * height : (place + 1) * height])
        panel.append(piece)
    return panel


def turned_weights(source: Any) -> Panel:
    """A part (rows, columns) of weights at an address that the run selects, as a panel (columns, rows).

    Elements of 2 bytes are transposed by DMA, others by the Tensor engine.
    """
    pmax = nl.tile_size.pmax
    rows, columns = source.shape
    if source.dtype.itemsize != 2 or nisa.get_nc_version() < nisa.nc_version.gen3:
        panel = [sbuf((size(part), rows), source.dtype) for part in streaming.spans(columns, pmax)]
        for down in streaming.spans(rows, pmax):
            tile = sbuf((size(down), columns), source.dtype)
            nisa.dma_copy(dst=tile, src=source[down])
            for part, piece in zip(streaming.spans(columns, pmax), panel, strict=True):
                streaming.transpose(tile[:, part], into=piece[:, down])
        return panel
    whole, panel = columns // pmax, []
    if whole:
        turned = sbuf((pmax, whole, rows), source.dtype)
        pieces = source[:, 0 : whole * pmax].reshape_dim(1, (whole, pmax))
        nisa.dma_transpose(dst=turned, src=pieces, dge_mode=nisa.dge_mode.none)
        panel = [turned[:, place, :] for place in range(whole)]
    if columns % pmax:
        rest = sbuf((columns % pmax, rows), source.dtype)
        nisa.dma_transpose(dst=rest, src=source[:, whole * pmax :], dge_mode=nisa.dge_mode.none)
        panel.append(rest)
    return panel
