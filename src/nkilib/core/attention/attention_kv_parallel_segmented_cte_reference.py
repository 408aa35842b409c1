"""Attention over a cache of blocks that ranks share, in NumPy: tensors are lists with an array for each rank."""

from __future__ import annotations

from typing import Any

import numpy as np


def attention_kv_parallel_segmented_cte_reference(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    block_tables: Any,
    kvp_q_offset: Any,
    replica_groups: Any,
    group_size: int,
    block_size: int,
    seg_size: int,
    scale: float = 1.0,
    global_q_offset: int = 0,
    tp_out: bool = False,
    sliding_window: int = 0,
    kvp_rank_id: Any = None,
    kvp_group_size: int = 0,
    apc_mode: bool = False,
    valid_num_prior_tokens: Any = None,
) -> list[Any]:
    """As `attention_kv_parallel_segmented_cte` on every rank, in float64."""
    results: list[Any] = [None] * len(q)
    for ring in replica_groups.ranks():
        heads, count, _ = q[ring[0]].shape
        own = {rank: (_rows(k_cache, block_tables, rank), _rows(v_cache, block_tables, rank)) for rank in ring}
        for number, rank in enumerate(ring):
            scores, values = [], []
            for other in ring:
                keys, weighted = own[other]
                group = heads * group_size // len(keys)
                index = (number * heads + np.arange(heads)) // group
                key = np.arange(keys.shape[1])
                if kvp_group_size:
                    turn = key // block_size * kvp_group_size + int(kvp_rank_id[other][0, 0])
                    key = turn * block_size + key % block_size
                query = int(kvp_q_offset[other][0, 0]) + np.arange(count)[:, None]
                seen = (key <= query) & (key > query - (sliding_window or np.inf))
                made = scale * q[rank].astype(np.float64) @ keys[index].swapaxes(1, 2)
                scores.append(np.where(seen, made, -np.inf))
                values.append(weighted[index])
            every = np.concatenate(scores, axis=2)
            weights = np.exp(every - np.maximum(every.max(axis=2, keepdims=True), -1e30))
            out = weights @ np.concatenate(values, axis=1) / np.maximum(weights.sum(axis=2, keepdims=True), 1e-300)
            results[rank] = (out.swapaxes(1, 2) if tp_out else out).astype(q[rank].dtype)
    return results


def _rows(cache: Any, tables: Any, rank: int) -> Any:
    """Keys in their order, ``(heads, keys, d)``."""
    blocks = cache[rank][tables[rank][0]].astype(np.float64).swapaxes(0, 1)
    return blocks.reshape(blocks.shape[0], -1, blocks.shape[3])
