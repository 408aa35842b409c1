"""What falls to a core, and what is known of a block of tokens when the kernel runs: ids, expert, hidden states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import products, streaming
from nkilib.core.moe.moe_cte.layer import Layer
from nkilib.products import Slab, Stack
from nkilib.streaming import sbuf


@dataclass(frozen=True)
class Share:
    """What this core does of each of its blocks.

    Attributes:
        middle: columns of the intermediate dimension.
        other: those that the other core hands over, or None.
        columns: of the result.
    """

    middle: slice
    other: slice | None
    columns: slice


def share_of(layer: Layer, shared: bool) -> Share:
    """All of a block, or what falls to this core if the cores share each of them."""
    (inner, hidden), core = layer.down.shape[1:], nl.program_id(0)
    if not shared or nl.num_programs(0) == 1:
        return Share(slice(0, inner), None, slice(0, hidden))
    columns = products.own(hidden)
    if inner % 2:  # halves that are exchanged have one shape
        return Share(slice(0, inner), None, columns)
    halves = streaming.spans(inner, inner // 2)
    return Share(halves[core], halves[1 - core], columns)


@dataclass(frozen=True)
class Block:
    """What is known of a block when the kernel runs.

    Attributes:
        number: of the block, an int or a register.
        ids: (height, tiles) int32 in SBUF: token p of tile t is in place t * height + p.
        expert: (1, 1) int32 in SBUF.
        affinities: (height, tiles) float32 in SBUF, or None if none are needed.
        hidden: hidden states of the tokens, (H, B).
    """

    number: Any
    ids: Any
    expert: Any
    affinities: Any
    hidden: Stack


def load_block(layer: Layer, number: Any) -> Block:
    """Tokens of a block with their hidden states, expert and affinities."""
    block, _ = load_ids(layer, number)
    return replace(block, hidden=_gathered(layer, block.ids))


def load_ids(layer: Layer, number: Any) -> tuple[Block, Any]:
    """A block without hidden states, and where its affinities are, (height, tiles) int32."""
    height = min(layer.block, nl.tile_size.pmax)
    tiles = layer.block // height
    ids, expert = sbuf((height, tiles), nl.int32), sbuf((height, 1), nl.int32)
    places = layer.ids.reshape((layer.blocks, tiles, height)).select(0, number)
    nisa.dma_copy(dst=ids, src=places.permute((1, 0)), dge_mode=nisa.dge_mode.none)
    one = layer.experts.reshape((layer.blocks, 1)).select(0, number).reshape((1, 1))
    nisa.dma_copy(dst=expert, src=one.broadcast(0, height))
    where = _places(layer, ids, expert)
    scaled = layer.scales_input or layer.scales_result or layer.scales_middle
    return Block(number, ids, expert[0:1, 0:1], _affinities(layer, where) if scaled else None, []), where


def _places(layer: Layer, ids: Any, expert: Any) -> Any:
    """Where the affinities of tokens to their block's expert are."""
    number, places = sbuf((ids.shape[0], 1), nl.float32), sbuf(ids.shape, nl.int32)
    nisa.tensor_copy(dst=number, src=expert)
    nisa.tensor_scalar(
        dst=places, data=ids, op0=nl.multiply, operand0=float(layer.gate_up.shape[0]), op1=nl.add, operand1=number
    )
    return places


def _affinities(layer: Layer, places: Any) -> Any:
    height, tiles = places.shape
    found = streaming.filled((height, tiles), nl.float32, 0.0) if layer.skip.skip_token else None
    found = sbuf((height, tiles), nl.float32) if found is None else found
    rows = layer.affinities.reshape((layer.affinities.size, 1))
    for tile in range(tiles):
        source = rows.ap([[1, height], [1, 1]], vector_offset=places[:, tile : tile + 1], indirect_dim=0)
        nisa.dma_copy(dst=found[:, tile : tile + 1], src=source, oob_mode=missing(layer))
    return found


def missing(layer: Layer) -> Any:
    """What transfers do about padding."""
    return nisa.oob_mode.skip if layer.skip.skip_token else nisa.oob_mode.error


def rows_of(tensor: Any, ids: Any, tile: int, columns: slice) -> Any:
    """Columns of the rows of one tile of tokens."""
    return tensor[:, columns].vector_select(0, ids[:, tile : tile + 1])


def _gathered(layer: Layer, ids: Any) -> Stack:
    """The hidden states of a block's tokens as a stack (H, B)."""
    turned = turned_rows(layer, layer.hidden, ids)
    if turned is not None:
        return [Slab(turned, 0)]
    tiles = (_gather(layer, ids, tile) for tile in range(ids.shape[1]))
    return products.turned(tiles, layer.block, layer.hidden.shape[1], layer.dtype)


def turned_rows(layer: Layer, source: Any, ids: Any) -> Any:
    """Rows (T, H) of a block's tokens as (128, H / 128, B), by one transfer that gathers and transposes them.

    Rows that are missing are anything finite. None if DMA cannot: it transposes 2 bytes, and whole tiles.
    """
    (_, hidden), tokens = source.shape, layer.block
    if source.dtype != layer.dtype or source.dtype.itemsize != 2 or hidden % 128 or tokens % 16:
        return None
    pieces = hidden // 128
    turned = sbuf((128, pieces, tokens), layer.dtype)
    if layer.skip.skip_token:
        nisa.memset(dst=turned, value=0.0)
    rows = source.ap(
        [[hidden, tokens], [hidden, 1], [128, pieces], [1, 128]],
        vector_offset=ids.view(nl.uint32),
        indirect_dim=0,
    )
    nisa.dma_transpose(dst=turned.reshape((128, 1, pieces, tokens)), src=rows, oob_mode=missing(layer))
    return turned


def _gather(layer: Layer, ids: Any, tile: int) -> Any:
    """(height, H): the hidden states of one tile of tokens."""
    found = sbuf((ids.shape[0], layer.hidden.shape[1]), layer.hidden.dtype)
    if layer.skip.skip_token:
        nisa.memset(dst=found, value=0.0)
    source = rows_of(layer.hidden, ids, tile, slice(0, layer.hidden.shape[1]))
    nisa.dma_copy(dst=found, src=source, oob_mode=missing(layer))
    return found
