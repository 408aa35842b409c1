"""All experts of few tokens, or those that each token chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import products, streaming
from nkilib.core.moe.moe_cte.block import Block, Share
from nkilib.core.moe.moe_cte.last import add_last
from nkilib.core.moe.moe_cte.layer import Layer
from nkilib.core.moe.moe_cte.middle import middle_of
from nkilib.core.moe.moe_tkg import affinities as scaling
from nkilib.core.moe.moe_tkg.tokens import Tokens
from nkilib.core.utils.common_types import ExpertAffinityScaleMode
from nkilib.stacks import Stack
from nkilib.streaming import sbuf, size

_CHUNK = 512
"""Tokens whose results are summed in SBUF at once; from about 200 on the Tensor engine bounds."""


def local_affinities(layer: Layer, rank: Any, masked: bool) -> list[Any] | None:
    """For each tile of tokens the affinities to the experts of this rank, or None if none are needed."""
    if not layer.scales_result:
        return None
    return scaling.of_rank(layer.affinities, layer.experts, rank, layer.down.shape[0], masked)


def compute_all(layer: Layer, tokens: Tokens, affinities: Sequence[Any] | None, target: Any) -> None:
    """The sum over all experts, for all tokens."""
    for rows in streaming.spans(tokens.count, _CHUNK):
        tiles = slice(rows.start // nl.tile_size.pmax, streaming.ceil_div(rows.stop, nl.tile_size.pmax))
        factors = None if affinities is None else affinities[tiles]
        results = all_experts(replace(layer, block=size(rows)), tokens.stack(rows), factors)
        for tile, part in zip(results, streaming.spans(size(rows), nl.tile_size.pmax), strict=True):
            here = slice(rows.start + part.start, rows.start + part.stop)
            store(tokens, target, tile, here, partial=nl.num_programs(0) > 1)


def compute_chosen(layer: Layer, tokens: Tokens, eager: Any, target: Any) -> None:
    """The sum over the experts that each token chose."""
    index = scaling.in_tiles(layer.experts, nl.float32)[0]
    chosen = scaling.in_tiles(eager, nl.float32)[0] if eager is not None else None
    if chosen is None and layer.scales_result:
        chosen = scaling.gathered(scaling.in_tiles(layer.affinities, nl.float32)[0], index)
    if not layer.scales_result:
        chosen = streaming.filled(index.shape, nl.float32, 1.0)
    experts, inner, _ = layer.down.shape
    if tokens.count * index.shape[1] > experts:  # each expert is loaded once, and not once for each choice
        dense = scaling.scattered(chosen, index, experts)
        compute_all(replace(layer, scaling=ExpertAffinityScaleMode.POST_SCALE), tokens, [dense], target)
        return
    core, cores, numbers = nl.program_id(0), nl.num_programs(0), range(tokens.count)
    split = target.buffer != nl.sbuf and tokens.count % cores == 0
    middle = slice(0, inner) if split else slice(inner * core // cores, inner * (core + 1) // cores)
    whole, factors = sbuf(index.shape, nl.int32), scaling.flat(chosen) if layer.scales_result else None
    nisa.tensor_copy(dst=whole, src=index)
    stack, mine = tokens.stack(slice(0, tokens.count)), streaming.share(numbers) if split else numbers
    for token, row in chosen_experts(replace(layer, block=1), stack, scaling.flat(whole), factors, mine, middle):
        store(tokens, target, row, slice(token, token + 1), partial=cores > 1 and not split)


def own_work(experts: int, inner: int) -> tuple[list[int], slice]:
    """Experts, and columns of the intermediate dimension, that this core computes; the cores add up their results."""
    numbers, core, cores = list(range(experts)), nl.program_id(0), nl.num_programs(0)
    if cores == 1 or experts % cores == 0:
        return streaming.share(numbers), slice(0, inner)
    return numbers, slice(inner * core // cores, inner * (core + 1) // cores)


def all_experts(layer: Layer, stack: Stack, affinities: Sequence[Any] | None) -> list[Any]:
    """This core's part of the sum over all experts.

    Args:
        layer: `block` is the number of tokens.
        stack: hidden states (H, tokens).
        affinities: for each tile of at most 128 tokens (tokens, experts) in float32, or None.

    Returns:
        For each tile (tokens, H) in float32.
    """
    experts, inner, hidden = layer.down.shape
    numbers, middle = own_work(experts, inner)
    share = Share(middle, None, slice(0, hidden))
    results = [sbuf((size(rows), hidden), nl.float32) for rows in streaming.spans(layer.block, nl.tile_size.pmax)]
    layer = layer if middle.start == 0 else replace(layer, down_bias=None)
    for place, number in enumerate(numbers):
        factors = None if affinities is None else _column(affinities, number)
        one = replace(layer, accumulating=place > 0)
        block = Block(number, None, number, factors, stack)
        add_last(one, share, block, middle_of(one, share, block), results)
    return results


def _column(affinities: Sequence[Any], expert: int) -> Any:
    """Affinities to an expert, a column for each tile of tokens."""
    columns = sbuf((affinities[0].shape[0], len(affinities)), nl.float32)
    for place, tile in enumerate(affinities):
        nisa.tensor_copy(dst=columns[0 : tile.shape[0], place : place + 1], src=tile[:, expert : expert + 1])
    return columns


def chosen_experts(
    layer: Layer, stack: Stack, index: Any, affinities: Any, tokens: Sequence[int], middle: slice
) -> Iterator[tuple[int, Any]]:
    """Of each of some tokens this core's part of the sum over the experts that it chose.

    Args:
        layer: `block` is 1.
        stack: hidden states (H, T) of all tokens.
        index: (1, T * K) int32 in SBUF.
        affinities: (1, T * K) float32 in SBUF, or None.
        tokens: numbers of the tokens.
        middle: columns of the intermediate dimension that this core computes.

    Yields:
        A token's number, and (1, H) in float32.
    """
    share = Share(middle, None, slice(0, layer.down.shape[2]))
    slots = index.shape[1] // stack[0].tile.shape[2]
    layer = layer if middle.start == 0 else replace(layer, down_bias=None)
    for token in tokens:
        row = sbuf((1, layer.down.shape[2]), nl.float32)
        own = [replace(slab, tile=slab.tile[:, :, token : token + 1]) for slab in stack]
        for slot in range(slots):
            place = slice(token * slots + slot, token * slots + slot + 1)
            one = replace(layer, accumulating=slot > 0)
            block = Block(slot, None, index[:, place], None if affinities is None else affinities[:, place], own)
            add_last(one, share, block, middle_of(one, share, block), [row])
        yield token, row


def store(tokens: Tokens, target: Any, tile: Any, rows: slice, *, partial: bool) -> None:
    """Results of some tokens where they belong.

    Args:
        tile: (tokens, H) in float32.
        partial: whether the tiles of both cores are to be added up; each core stores half of the columns then.
    """
    hidden = tile.shape[1]
    half = products.own(hidden) if partial and target.buffer != nl.sbuf else slice(0, hidden)
    if partial:  # cores exchange halves of one shape, or everything
        alike = hidden % 2 == 0 and target.buffer != nl.sbuf
        tile = _added_up(tile, half) if alike else _added_up(tile, slice(0, hidden))[:, half]
    rounded = sbuf(tile.shape, target.dtype)
    nisa.tensor_copy(dst=rounded, src=tile)
    if target.buffer == nl.sbuf:
        tokens.put(target, rounded, rows)
    else:
        streaming.store(target[rows, half], rounded)


def _added_up(tile: Any, columns: slice) -> Any:
    """Some columns of the sum of the cores' tiles; the other core asks for as many."""
    core = nl.program_id(0)
    wanted = slice(tile.shape[1] - columns.stop, tile.shape[1] - columns.start)
    total = sbuf((tile.shape[0], size(columns)), tile.dtype)
    nisa.sendrecv(dst=total, src=tile[:, wanted], send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, columns], op=nl.add)
    return total
