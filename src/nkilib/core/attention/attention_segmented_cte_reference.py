"""Attention over a cache of blocks in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def attention_segmented_cte_reference(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    block_tables: Any,
    prior_tokens: Any,
    block_size: int,
    prior_seg_size: int,
    scale: float = 1.0,
    tp_q: bool = True,
    tp_out: bool = False,
    sliding_window: int | None = None,
    sink: Any = None,
    num_q_heads: int = 1,
    k_pre_transposed: bool = False,
    fp8_packed: bool = False,
    k_scale: Any = None,
    v_scale: Any = None,
    kvp_q_offset: Any = None,
    kvp_rank_id: Any = None,
    kvp_group_size: int = 0,
    kvp_cp_offset_int: int = 0,
    kvp_seg_block_offset_int: int = 0,
    kvp_prior_load_blocks: int = 0,
    kvp_prior_fully_visible: bool = False,
) -> Any:
    """As `attention_segmented_cte`, in float64, without what that refuses."""
    queries = _wide(q) if tp_q else _wide(q).swapaxes(1, 2)
    count, width = queries.shape[1:]
    prior = int(np.ravel(prior_tokens)[0])
    used = np.asarray(block_tables)[:, : -(-(prior + count) // block_size)]
    keys, values = (
        _wide(cache)[used].swapaxes(1, 2).reshape(len(used), cache.shape[1], -1, width)[:, :, : prior + count]
        for cache in (k_cache, v_cache)
    )
    keys, values = (
        cache * (1.0 if factors is None else _wide(factors)[:width, 0])
        for cache, factors in ((keys, k_scale), (values, v_scale))
    )
    group = num_q_heads // keys.shape[1]
    keys, values = (np.repeat(each, group, axis=1).reshape(-1, prior + count, width) for each in (keys, values))
    query, key = np.arange(prior, prior + count)[:, None], np.arange(prior + count)
    seen = (key <= query) & (key > query - (sliding_window or prior + count))
    scores = np.where(seen, scale * queries @ keys.swapaxes(1, 2), -np.inf)
    sinks = np.full((len(queries), 1, 1), -np.inf) if sink is None else _wide(sink)[:, :, None]
    largest = np.maximum(scores.max(axis=2, keepdims=True), sinks)
    weights = np.exp(scores - largest)
    out = weights @ values / (weights.sum(axis=2, keepdims=True) + np.exp(sinks - largest))
    return (out.swapaxes(1, 2) if tp_out else out).astype(q.dtype)


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.float64)
