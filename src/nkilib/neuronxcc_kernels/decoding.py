"""What the old kernels of a decoding step share: masks in the order of this library's kernels, and places in caches."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.attention.attention_tkg_utils import resize_cache_block_len_for_attention_tkg_kernel
from nkilib.neuronxcc_kernels.outputs import meet
from nkilib.streaming import load, result, sbuf, size, spans, store, transpose

_MOST_PLACES = 1 << 24
"""Whole numbers up to which float32 is exact."""


def joined_masks(cache: Any, active: Any) -> Any:
    """Both masks of a step as one: the new tokens take the place of the last keys, as in the published kernel.

    Args:
        cache: (B, N, S, keys) in HBM, of any dtype, 0 where a key of the cache does not count.
        active: (B, N, S, S), the same of the new tokens; a single one always counts.

    Returns:
        (keys, B, N, S) bfloat16 in HBM, 0 and 1, which the cores of the launch share.
    """
    sizes = limits.shape("mask_cache", cache, ("B", "N", "S", "keys"))
    batch, heads, new, keys = (sizes[name] for name in ("B", "N", "S", "keys"))
    limits.shape("mask_active", active, ("B", "N", "S", "S"), sizes)
    limits.between("keys of mask_cache", keys, new, 1 << 24, "the new tokens are among them")
    columns = batch * heads * new
    rows_of_cache, rows_of_active = cache.reshape((columns, keys)), active.reshape((columns, new))
    made = result((keys, columns), nl.bfloat16)
    for part in spans(keys, nl.tile_size.pmax, shared=True):
        for some in spans(columns, nl.tile_size.pmax):
            tile = _counted(rows_of_cache[some, part], rows_of_active[some], part, keys - new)
            store(made[part, some], transpose(tile))
    meet(made)
    return made.reshape((keys, batch, heads, new))


def _counted(cache: Any, active: Any, part: slice, first: int) -> Any:
    """1 where a key of the part counts, and 0 elsewhere; new tokens are the keys from `first` on."""
    tile = sbuf((cache.shape[0], size(part)), nl.bfloat16)
    nisa.tensor_scalar(dst=tile, data=load(cache), op0=nl.not_equal, operand0=0.0)
    start = max(part.start, first)
    if start >= part.stop:
        return tile
    own = tile[:, start - part.start : size(part)]
    if active.shape[1] == 1:
        nisa.memset(dst=own, value=1.0)
    else:
        nisa.tensor_scalar(
            dst=own, data=load(active[:, start - first : part.stop - first]), op0=nl.not_equal, operand0=0.0
        )
    return tile


def paged_mask(mask: Any, block_len: int) -> Any:
    """A mask (keys, B, N, S) with its rows in the order that kernels read a paged cache in; see attention_tkg_utils."""
    keys, batch, heads, new = mask.shape
    limits.multiple("keys of mask_cache", keys, block_len, "whole blocks are looked at")
    cores, rows = int(nl.num_programs(0)), int(nl.tile_size.pmax)
    sizes = (keys // block_len, block_len, cores, rows, batch, heads, new)
    run, _ = resize_cache_block_len_for_attention_tkg_kernel(*sizes)
    made = result(tuple(mask.shape), mask.dtype)
    shape = (keys // (rows * run), rows, run, batch * heads * new)
    split, ordered = mask.reshape(shape), made.reshape((shape[0], run, rows, shape[3]))
    if int(nl.program_id(0)) == 0:
        for part in range(shape[0]):
            nisa.dma_copy(dst=ordered[part], src=split[part].permute((1, 0, 2)))
    meet(made)
    return made


def slots(table: Any, positions: Any, block_len: int) -> Any:
    """The places of new tokens in a paged cache, counted through all of its blocks.

    Args:
        table: (B, blocks) int32 in HBM, the blocks of each sequence in their order.
        positions: (B, S) int32 in HBM; one that is in none of the blocks gets the place -1, which is nowhere.
        block_len: tokens of a block.

    Returns:
        (B, S) int32 in HBM.
    """
    sizes = limits.shape("active_blocks_table", table, ("B", "blocks"))
    limits.shape("position_ids", positions, ("B", "S"), sizes)
    batch, blocks, new = sizes["B"], sizes["blocks"], positions.shape[1]
    limits.between("blocks of a sequence * block length", blocks * block_len, 1, _MOST_PLACES)
    made = result((batch, new), nl.int32)
    if int(nl.program_id(0)) == 0:
        for some in spans(batch, nl.tile_size.pmax):
            store(made[some], _slots(load(table[some], nl.float32), load(positions[some], nl.float32), block_len))
    meet(made)
    return made


def _slots(table: Any, positions: Any, block_len: int) -> Any:
    """`slots` of at most 128 sequences, on chip: one block has a token's offset in 0 to `block_len`, or none."""
    rows, blocks = table.shape
    starts, first = sbuf((rows, blocks), nl.float32), sbuf((rows, blocks), nl.float32)
    nisa.iota(dst=starts, pattern=[[block_len, blocks]], offset=0, channel_multiplier=0)
    nisa.tensor_scalar(dst=first, data=table, op0=nl.multiply, operand0=float(block_len), op1=nl.add, operand1=1.0)
    found = sbuf((rows, positions.shape[1]), nl.float32)
    for place in range(positions.shape[1]):
        offset, inside, after = (sbuf((rows, blocks), nl.float32) for _ in range(3))
        position = positions[:, place : place + 1]
        nisa.tensor_scalar(dst=offset, data=starts, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=position)
        nisa.tensor_scalar(dst=inside, data=offset, op0=nl.greater_equal, operand0=0.0)
        nisa.tensor_scalar(dst=after, data=offset, op0=nl.less, operand0=float(block_len))
        nisa.tensor_tensor(dst=inside, data1=inside, data2=after, op=nl.multiply)
        nisa.tensor_tensor(dst=offset, data1=offset, data2=first, op=nl.add)
        nisa.tensor_tensor(dst=offset, data1=offset, data2=inside, op=nl.multiply)
        nisa.tensor_reduce(dst=found[:, place : place + 1], op=nl.add, data=offset, axis=(1,))
    whole = sbuf(tuple(found.shape), nl.int32)
    nisa.tensor_scalar(dst=whole, data=found, op0=nl.subtract, operand0=1.0)
    return whole


def repeated(column: Any, times: int) -> Any:
    """A column (B, 1) of HBM as (B, times) in HBM."""
    if times == 1:
        return column
    made = result((column.shape[0], times), column.dtype)
    if int(nl.program_id(0)) == 0:
        nisa.dma_copy(dst=made, src=column.broadcast(1, times))
    meet(made)
    return made
