"""A block of sliding-window attention in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def swa_fused_cte_reference(
    hidden_states: Array,
    qkv_weight: Array,
    op_weight: Array,
    k_cache: Array,
    v_cache: Array,
    block_tables: Array,
    cos_cache: Array,
    sin_cache: Array,
    sink: Array,
    prior_tokens: Array,
    qkv_bias: Array,
    op_bias: Array,
    scale: float = 1.0,
    sliding_window: int = 128,
    block_size: int = 128,
    num_q_heads: int = 16,
    num_kv_heads: int = 2,
    d_head: int = 64,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The result, and copies of the caches with the new tokens, in float64."""
    prior, (batch, new, _) = int(prior_tokens.item()), hidden_states.shape
    wide = hidden_states.astype(np.float64) @ qkv_weight.astype(np.float64) + qkv_bias.astype(np.float64)
    heads = wide.reshape(batch, new, -1, d_head)
    cos, sin = (each.astype(np.float64)[:, :, None] for each in (cos_cache, sin_cache))
    q = _rotated(heads[:, :, :num_q_heads], cos, sin)
    k = _rotated(heads[:, :, num_q_heads : num_q_heads + num_kv_heads], cos, sin)
    v = heads[:, :, num_q_heads + num_kv_heads :]
    caches = k_cache.astype(np.float64), v_cache.astype(np.float64)
    begin = -(-prior // block_size) * block_size
    out = np.empty(hidden_states.shape)
    at = np.arange(prior + new)
    position = np.arange(prior, prior + new)[:, None]
    seen = (at <= position) & (at > position - sliding_window)
    for b in range(batch):
        place = np.concatenate([np.arange(prior), begin + np.arange(new)])
        block, slot = block_tables[b, place // block_size], place % block_size
        for cache, made in zip(caches, (k, v), strict=True):
            cache[block[prior:], :, slot[prior:]] = made[b]
        keys, values = (cache[block, :, slot] for cache in caches)
        attention = np.empty((new, num_q_heads, d_head))
        for head in range(num_q_heads):
            group = head * num_kv_heads // num_q_heads
            scores = np.where(seen, scale * q[b, :, head] @ keys[:, group].T, -np.inf)
            most = np.maximum(scores.max(1, keepdims=True), sink[b, head])
            weights = np.exp(scores - most)
            total = weights.sum(1, keepdims=True) + np.exp(sink[b, head] - most)
            attention[:, head] = weights @ values[:, group] / total
        out[b] = attention.reshape(new, -1) @ op_weight.astype(np.float64) + op_bias.astype(np.float64)
    return out, *caches


def _rotated(x: Array, cos: Array, sin: Array) -> Array:
    low, high = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-high, low], axis=-1) * sin
