"""One block of tokens through its expert, and the sum of all blocks.

The expert of a block is known when the kernel runs: its number is the offset of the weights that are loaded. Tokens are
gathered and transposed by DMA on the way, so that the first products have the intermediate dimension on partitions and
are themselves what the second product contracts. Its rows are scaled, added to what the same tokens have so far, and
scattered back.

Two cores either take blocks of their own and add up what they have at the end, or share every block: each has half of
the intermediate dimension, hands its half to the other one, and computes half of the columns of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.moe.moe_cte.block import Block, Share, load_block, missing, rows_of, share_of
from nkilib.core.moe.moe_cte.last import add_last
from nkilib.core.moe.moe_cte.layer import Layer
from nkilib.core.moe.moe_cte.middle import middle_of
from nkilib.streaming import sbuf, size


def shared_blocks(layer: Layer, out: Any, static: int | None = None, count: Any = None) -> None:
    """All blocks one after the other; the cores of the launch share each of them.

    Args:
        out: (rows, H).
        static: how many blocks there are in any case; None for all.
        count: a register with the number of all blocks, where `static` is given.
    """
    share = share_of(layer, shared=True)
    if layer.accumulating:
        _clear(out, share.columns)
    add_blocks(layer, share, range(layer.blocks if static is None else static), out)
    if count is not None:
        nl.fori_loop(static, count, lambda number: add_block(layer, share, load_block(layer, number), out))
    meet(out)


def own_blocks(layer: Layer, numbers: Sequence[int], out: Any) -> None:
    """This core's blocks, into its own rows.

    Args:
        out: (T + 1, H), of this core alone.
    """
    share = share_of(layer, shared=False)
    if layer.accumulating:
        _clear(out, share.columns)
    add_blocks(layer, share, numbers, out)


def _clear(out: Any, columns: slice, *, shared: bool = False) -> None:
    """Zeros in columns of all rows, or of this core's rows."""
    zeros = streaming.filled((nl.tile_size.pmax, size(columns)), out.dtype, 0.0)
    for rows in streaming.spans(out.shape[0], nl.tile_size.pmax, shared=shared):
        streaming.store(out[rows, columns], zeros[0 : size(rows)])


def add_parts(parts: Any, out: Any) -> None:
    """The sum of what the cores have, each of which adds up some of the rows.

    Args:
        parts: (cores, rows, H), for each core its result.
        out: (rows, H), or (rows, 2, H) for the sum and zeros.
    """
    meet(parts)
    paired = len(out.shape) > 2
    if paired:
        _clear(out[:, 1, :], slice(0, out.shape[2]), shared=True)
    for rows in streaming.spans(out.shape[0], nl.tile_size.pmax, shared=True):
        total, *others = (streaming.load(parts[core, rows]) for core in range(parts.shape[0]))
        for other in others:
            nisa.tensor_tensor(dst=total, data1=total, data2=other, op=nl.add)
        streaming.store(out[rows, 0, :] if paired else out[rows], total)


def meet(tensor: Any) -> None:
    """Both cores have written what they write to a tensor before either goes on."""
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=tensor, cores=(0, 1))


def add_block(layer: Layer, share: Share, block: Block, out: Any) -> None:
    """Compute a block, and add it to rows of the result, or write them.

    Args:
        out: (rows, H) in HBM.
    """
    middle = middle_of(layer, share, block)
    results = rows_so_far(layer, share, block, out)
    add_last(layer, share, block, middle, results)
    for tile, result in enumerate(results):
        nisa.dma_copy(dst=rows_of(out, block.ids, tile, share.columns), src=result, oob_mode=missing(layer))


def add_blocks(layer: Layer, share: Share, numbers: Sequence[int], out: Any) -> None:
    """Compute several blocks; each is loaded before the one before is computed, whose rows are stored late."""
    following = [load_block(layer, number) for number in numbers[:1]]
    for place in range(len(numbers)):
        block = following.pop()
        following = [load_block(layer, number) for number in numbers[place + 1 : place + 2]]
        add_block(layer, share, block, out)


def rows_so_far(layer: Layer, share: Share, block: Block, out: Any) -> list[Any]:
    """For each tile of tokens what they have got in other blocks; new tiles if nothing is added to them."""
    tiles = []
    for tile in range(block.ids.shape[1]):
        so_far = sbuf((block.ids.shape[0], size(share.columns)), out.dtype)
        if layer.accumulating:
            if layer.skip.skip_token:
                nisa.memset(dst=so_far, value=0.0)
            nisa.dma_copy(dst=so_far, src=rows_of(out, block.ids, tile, share.columns), oob_mode=missing(layer))
        tiles.append(so_far)
    return tiles
