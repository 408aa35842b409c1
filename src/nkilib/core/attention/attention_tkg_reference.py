"""`attention_tkg` in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig, resize_cache_block_len_for_attention_tkg_kernel

Array = np.ndarray[Any, Any]


def attention_tkg_reference(
    q: Array,
    k_active: Array,
    v_active: Array,
    k_prior: Array,
    v_prior: Array,
    mask: Array,
    out: Array,
    cfg: AttnTKGConfig,
    sbm: Any = None,
    inv_freqs: Array | None = None,
    rope_pos_ids: Array | None = None,
    start_pos_ids: Array | None = None,
    sink: Array | None = None,
    active_blocks_table: Array | None = None,
    k_out: Array | None = None,
    cp_softmax_stats_out: None = None,
    DBG_TENSORS: None = None,
    max_context_len: None = None,
    dtype_mode: Any = None,
    *,
    lnc: int = 1,
) -> tuple[Array, Array | None]:
    """The result and the turned keys, in float64; shapes and dtypes of `out` and `k_out` alone matter.

    Args:
        lnc: cores of the launch, on which the order of a paged mask's rows depends.
    """
    batch, heads, new, head = cfg.bs, cfg.q_head, cfg.s_active, cfg.d_head
    queries, keys = _tokens(q, cfg, heads), _tokens(k_active, cfg, 1)
    if cfg.fuse_rope:
        assert inv_freqs is not None and rope_pos_ids is not None
        queries, keys = (_turned(each, inv_freqs, rope_pos_ids) for each in (queries, keys))
        queries = queries / np.sqrt(head)
    old = (each[:, : cfg.curr_sprior - new] for each in _cached(k_prior, v_prior, active_blocks_table, cfg))
    pairs = zip(old, (keys[:, 0], v_active[:, 0]), strict=True)
    all_keys, all_values = (np.concatenate(pair, axis=1) for pair in pairs)
    counts = _counts(mask, rope_pos_ids, start_pos_ids, cfg, lnc)
    scores = np.where(counts, np.einsum("bhsd,bkd->bhsk", queries, all_keys), -np.inf)
    if sink is not None:
        column = np.broadcast_to(np.asarray(sink, np.float64).reshape(1, heads, 1, 1), (batch, heads, new, 1))
        scores = np.concatenate([scores, column], axis=3)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    weights = (weights / weights.sum(axis=3, keepdims=True))[..., : cfg.curr_sprior]
    result = np.einsum("bhsk,bkd->bhds", weights, all_values)
    made = result.transpose(2, 0, 1, 3).reshape(head, -1) if cfg.out_in_sb else result
    given = keys.transpose(3, 0, 1, 2).reshape(head, -1) if cfg.k_out_in_sb else keys.transpose(0, 1, 3, 2)
    return made.astype(out.dtype), None if k_out is None else given.astype(k_out.dtype)


def _tokens(source: Array, cfg: AttnTKGConfig, heads: int) -> Array:
    """Queries or keys as (B, heads, S, d)."""
    wide = source.astype(np.float64)
    if cfg.qk_in_sb:
        return wide.reshape(cfg.d_head, cfg.bs, heads, cfg.s_active).transpose(1, 2, 3, 0)
    if wide.ndim == 3:
        return wide.transpose(0, 2, 1)[:, None]
    return wide.transpose(0, 2, 3, 1) if wide.shape[1:3] == (cfg.d_head, heads) else wide


def _turned(tokens: Array, inv_freqs: Array, positions: Array) -> Array:
    angles = positions.astype(np.float64)[:, None, :, None] * inv_freqs[:, 0]
    first, second = np.split(tokens, 2, axis=3)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=3)


def _cached(keys: Array, values: Array, table: Array | None, cfg: AttnTKGConfig) -> tuple[Array, Array]:
    """Keys and values that are looked at, (B, keys, d)."""
    if cfg.block_len:
        assert table is not None
        blocks = np.maximum(table[:, : cfg.curr_sprior // cfg.block_len].astype(np.int64), 0)
        paged = (each.astype(np.float64)[blocks].reshape(cfg.bs, -1, cfg.d_head) for each in (keys, values))
        return next(paged), next(paged)
    ordered = keys if cfg.tp_k_prior else keys.transpose(0, 1, 3, 2)
    found = (each[: cfg.bs, 0, : cfg.curr_sprior].astype(np.float64) for each in (ordered, values))
    return next(found), next(found)


def _counts(mask: Array, positions: Array | None, starts: Array | None, cfg: AttnTKGConfig, lnc: int) -> Array:
    """Whether a key counts, (B, heads, S, keys)."""
    if not cfg.use_pos_id:
        return _in_order(mask.transpose(1, 2, 3, 0) != 0, cfg, lnc)
    assert positions is not None
    keys, ends = np.arange(cfg.curr_sprior), positions.astype(np.float64)[:, :, None]
    found = np.broadcast_to(keys < ends[:, :1], (cfg.bs, cfg.s_active, cfg.curr_sprior))
    if starts is not None:
        first = starts.astype(np.float64)[:, :, None]
        found = np.where(first <= ends, (keys >= first) & (keys < ends), (keys >= first) | (keys < ends))
    counts = np.broadcast_to(found[:, None], (cfg.bs, cfg.q_head, cfg.s_active, cfg.curr_sprior)).copy()
    counts[..., -cfg.s_active :] = mask.transpose(1, 2, 3, 0) != 0
    return counts


def _in_order(counts: Array, cfg: AttnTKGConfig, lnc: int) -> Array:
    """The rows of a paged mask, which are (128 blocks, key of the block, block), in the order of keys."""
    if not cfg.block_len:
        return counts
    run, _ = resize_cache_block_len_for_attention_tkg_kernel(
        cfg.curr_sprior // cfg.block_len,
        cfg.block_len,
        lnc,
        128,
        cfg.bs,
        cfg.q_head,
        cfg.s_active,
        enable_fa_s_prior_tiling=cfg.enable_fa_s_prior_tiling,
    )
    split = counts.reshape(*counts.shape[:3], -1, run, 128)
    return split.swapaxes(4, 5).reshape(counts.shape)
