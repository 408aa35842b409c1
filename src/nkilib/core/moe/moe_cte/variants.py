"""What two cores do of all blocks: blocks of their own, or a share of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.moe.moe_cte import blockwise
from nkilib.core.moe.moe_cte.layer import Layer
from nkilib.core.moe.moe_cte.moe_cte_utils import BlockShardStrategy


def shard_on_block(layer: Layer, strategy: BlockShardStrategy, grouped: int = 1, *, paired: bool = False) -> Any:
    """Blocks of its own for each core; afterwards each core adds up half of the rows.

    Args:
        grouped: blocks that are computed together, 1.
        paired: the result is (rows, 2, H), with the sum in place 0 and zeros in place 1.
    """
    limits.need(
        grouped == 1,
        "n_block_per_iter",
        grouped,
        "blocks are not grouped, because loads run ahead as far as there is room",
        "pass n_block_per_iter=1",
    )
    (rows, hidden), dtype, cores = layer.hidden.shape, layer.hidden.dtype, nl.num_programs(0)
    numbers = _own_numbers(layer, strategy)
    out = streaming.result((rows, 2, hidden) if paired else (rows, hidden), dtype)
    if (cores == 1 and not paired) or not layer.accumulating:
        blockwise.own_blocks(layer, numbers, out)
    else:
        parts = streaming.result((cores, rows, hidden), dtype)
        blockwise.own_blocks(layer, numbers, parts[nl.program_id(0)])
        blockwise.add_parts(parts, out)
    blockwise.meet(out)
    return _with_saved(layer, out)


def _own_numbers(layer: Layer, strategy: BlockShardStrategy) -> list[int]:
    """Blocks that this core computes."""
    core, cores = nl.program_id(0), nl.num_programs(0)
    if strategy == BlockShardStrategy.PING_PONG:
        return list(range(core, layer.blocks, cores))
    return streaming.share(range(layer.blocks))


def shard_on_i(layer: Layer, saving: bool = False) -> Any:
    """All blocks in turn, each shared by the cores; perhaps with new tensors for what the backward pass needs."""
    layer = _saving(layer) if saving else layer
    out = streaming.result(layer.hidden.shape, layer.hidden.dtype)
    blockwise.shared_blocks(layer, out)
    return _with_saved(layer, out)


def shard_on_i_dropping(layer: Layer) -> Any:
    """One block for each expert."""
    limits.need(
        layer.blocks == layer.down.shape[0],
        "token_position_to_id",
        f"for {layer.blocks} blocks",
        f"each of {layer.down.shape[0]} experts has one block",
        "pass E * block_size places",
    )
    return shard_on_i(layer, saving=True)


def shard_on_i_hybrid(layer: Layer, conditions: Any, static: int | None = None) -> Any:
    """The first blocks in any case, and of the others as many as have tokens."""
    limits.need(
        conditions is not None, "conditions", "None", "shard_on_i_hybrid counts blocks with tokens", "pass conditions"
    )
    wanted = max(0, layer.blocks - layer.down.shape[0]) if static is None else static
    out = streaming.result(layer.hidden.shape, layer.hidden.dtype)
    blockwise.shared_blocks(layer, out, static=min(wanted, layer.blocks), count=_counted(conditions))
    return _with_saved(layer, out)


def _counted(conditions: Any) -> Any:
    """The sum of the conditions in a register."""
    row = streaming.load(conditions.reshape((1, conditions.size)))
    total = streaming.sbuf((1, 1), nl.int32)
    nisa.tensor_reduce(dst=total, op=nl.add, data=row, axis=(1,))
    count = nisa.register_alloc()
    nisa.register_load(dst=count, src=total)
    return count


def _saving(layer: Layer) -> Layer:
    """The layer with new tensors for what the backward pass needs."""
    inner, hidden = layer.down.shape[1:]
    dtype = layer.hidden.dtype
    gate_up = streaming.result((layer.blocks, 2, inner, layer.block), dtype)
    down = None if layer.scale_intermediate else streaming.result((layer.blocks, layer.block, hidden), dtype)
    return replace(layer, saved_gate_up=gate_up, saved_down=down)


def _with_saved(layer: Layer, out: Any) -> Any:
    saved = [each for each in (layer.saved_gate_up, layer.saved_down) if each is not None]
    return (out, *saved) if saved else out
