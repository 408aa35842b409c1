"""`attention_block_tkg` in NumPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from nkilib.core.attention.attention_tkg_reference import attention_tkg_reference
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig
from nkilib.core.utils.common_types import QuantizationType

Array = np.ndarray[Any, Any]


def attention_block_tkg_reference(
    X: Array,
    X_hidden_dim_actual: int | None,
    rmsnorm_X_enabled: bool,
    rmsnorm_X_eps: float | None,
    rmsnorm_X_gamma: Array | None,
    W_qkv: Array,
    bias_qkv: Array | None,
    quantization_type_qkv: QuantizationType,
    weight_dequant_scale_qkv: Array | None,
    input_dequant_scale_qkv: Array | None,
    rmsnorm_QK_pre_rope_enabled: bool,
    rmsnorm_QK_pre_rope_eps: float,
    rmsnorm_QK_pre_rope_W_Q: Array | None,
    rmsnorm_QK_pre_rope_W_K: Array | None,
    cos: Array | None,
    sin: Array | None,
    rope_contiguous_layout: bool,
    rmsnorm_QK_post_rope_enabled: bool,
    rmsnorm_QK_post_rope_eps: float,
    rmsnorm_QK_post_rope_W_Q: Array | None,
    rmsnorm_QK_post_rope_W_K: Array | None,
    K_cache_transposed: bool,
    active_blocks_table: Array | None,
    K_cache: Array,
    V_cache: Array,
    attention_mask: Array,
    sink: Array | None,
    update_cache: bool,
    kv_cache_update_idx: Array | None,
    W_out: Array | None,
    bias_out: Array | None,
    quantization_type_out: QuantizationType,
    weight_dequant_scale_out: Array | None,
    input_dequant_scale_out: Array | None,
    transposed_out: bool,
    out_in_sb: bool,
    transposed_in: bool = False,
    softmax_scale: float | None = None,
    enable_fa_s_prior_tiling: bool = True,
    fp8_packed: bool = False,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    sbm: Any = None,
    skip_attention: bool = False,
    is_h_transposed_by_4: bool = False,
    KVDP: int = 1,
    KVDP_replica_group: Any = None,
    KVDP_collective_mode: Any = None,
    KVDP_rank: Any = None,
    pos_ids: Array | None = None,
    swa_start_pos_ids: Array | None = None,
    S_ctx: int | None = None,
    max_context_len: Any = None,
    dtype_mode: Any = None,
    CP: int = 1,
    CP_replica_group: Any = None,
    CP_collective_mode: Any = None,
    *,
    lnc: int = 1,
) -> tuple[Array, Array, Array]:
    """The result and both caches or the new keys and values, in float64, the caches in their dtype.

    Without scales of 8-bit weights (`quantization_type_qkv` and `quantization_type_out` NONE), and with X in HBM.

    Args:
        lnc: cores of the launch.
    """
    given = SimpleNamespace(**locals())
    _, batch, heads, new = attention_mask.shape
    head = K_cache.shape[-2] if K_cache_transposed else K_cache.shape[-1]
    hidden = _hidden(given, batch, new)
    projected = hidden @ W_qkv.astype(np.float64) + (0.0 if bias_qkv is None else bias_qkv.astype(np.float64))
    split = projected.reshape(batch, new, heads + 2, head).transpose(0, 2, 1, 3)
    queries, keys, values = split[:, :heads], split[:, heads : heads + 1], split[:, heads + 1]
    queries, keys = _prepared(given, queries, "Q"), _prepared(given, keys, "K")[:, 0]
    keys, values = (_quantized(each, scale) for each, scale in ((keys, k_scale), (values, v_scale)))
    stored = [each.astype(K_cache.dtype) for each in (keys, values)]
    scale = head**-0.5 if softmax_scale is None else softmax_scale
    found = queries.transpose(0, 1, 3, 2) if skip_attention else _attended(given, queries * scale, *stored)
    caches = _written(given, *stored) if update_cache else (stored[0].transpose(2, 0, 1), stored[1][:, None])
    if W_out is None:
        out = found.transpose(2, 0, 1, 3).reshape(head, -1) if out_in_sb else found
        return out, *caches
    flat = found.transpose(0, 3, 1, 2).reshape(batch * new, heads * head) @ W_out.astype(np.float64)
    flat = flat + (0.0 if bias_out is None else bias_out.astype(np.float64))
    if transposed_out:
        flat = flat.reshape(batch * new, lnc, 128, -1).transpose(2, 1, 3, 0)
    return flat, *caches


def _hidden(given: Any, batch: int, new: int) -> Array:
    wide = given.X.astype(np.float64)
    hidden = wide.transpose(3, 1, 0, 2) if given.transposed_in else wide
    hidden = hidden.reshape(batch, new, -1)
    if not given.rmsnorm_X_enabled:
        return np.asarray(hidden)
    count = given.X_hidden_dim_actual or hidden.shape[2]
    eps = 1e-3 if given.rmsnorm_X_eps is None else given.rmsnorm_X_eps
    hidden = hidden / np.sqrt((hidden**2).sum(axis=2, keepdims=True) / count + eps)
    return hidden if given.rmsnorm_X_gamma is None else hidden * given.rmsnorm_X_gamma.astype(np.float64)


def _prepared(given: Any, heads: Array, kind: str) -> Array:
    """Heads (B, heads, S, d) normalised, turned, and normalised again."""
    for place in ("pre", "post"):
        if place == "post" and given.cos is not None:
            heads = _turned(given, heads)
        if getattr(given, f"rmsnorm_QK_{place}_rope_enabled"):
            eps = getattr(given, f"rmsnorm_QK_{place}_rope_eps")
            heads = heads / np.sqrt((heads**2).mean(axis=3, keepdims=True) + eps)
            weights = getattr(given, f"rmsnorm_QK_{place}_rope_W_{kind}")
            heads = heads if weights is None else heads * weights.astype(np.float64)
    return heads


def _turned(given: Any, heads: Array) -> Array:
    cos, sin = (each.astype(np.float64).transpose(1, 2, 0)[:, None] for each in (given.cos, given.sin))
    half = heads.shape[3] // 2
    pairs = (
        (slice(0, half), slice(half, None)) if given.rope_contiguous_layout else (slice(0, None, 2), slice(1, None, 2))
    )
    first, second = (heads[..., part] for part in pairs)
    turned = np.empty_like(heads)
    turned[..., pairs[0]], turned[..., pairs[1]] = first * cos - second * sin, second * cos + first * sin
    return turned


def _quantized(tokens: Array, scale: Array | None) -> Array:
    return tokens if scale is None else np.clip(tokens * float(scale[0, 0]), -240.0, 240.0)


def _attended(given: Any, queries: Array, keys: Array, values: Array) -> Array:
    batch, heads, new, head = queries.shape
    paged = given.active_blocks_table is not None
    k_prior, v_prior = (each if paged or each.ndim == 4 else each[:, None] for each in (given.K_cache, given.V_cache))
    seen = given.S_ctx if given.pos_ids is not None else given.attention_mask.shape[0]
    cfg = AttnTKGConfig(batch, heads, new, seen, 0, head, given.K_cache.shape[1] if paged else 0)
    cfg.tp_k_prior, cfg.use_pos_id = not given.K_cache_transposed, given.pos_ids is not None
    cfg.enable_fa_s_prior_tiling = given.enable_fa_s_prior_tiling
    out = np.zeros((), np.float64)
    found, _ = attention_tkg_reference(
        queries.transpose(0, 3, 1, 2),
        keys.transpose(0, 2, 1),
        values[:, None],
        k_prior,
        v_prior,
        given.attention_mask,
        out,
        cfg,
        rope_pos_ids=given.pos_ids,
        start_pos_ids=given.swa_start_pos_ids,
        sink=given.sink,
        active_blocks_table=given.active_blocks_table,
        lnc=given.lnc,
    )
    return found


def _written(given: Any, keys: Array, values: Array) -> tuple[Array, Array]:
    """Both caches with new keys and values (B, S, d)."""
    made = [given.K_cache.copy(), given.V_cache.copy()]
    batch, new, head = keys.shape
    for cache, tokens, transposed in ((made[0], keys, given.K_cache_transposed), (made[1], values, False)):
        for b in range(batch):
            for s in range(new):
                place = _place(given, b, s)
                if place is None:
                    continue
                if given.active_blocks_table is not None:
                    cache.reshape(-1, head)[place] = tokens[b, s]
                elif transposed:
                    cache.reshape(cache.shape[0], head, -1)[b, :, place] = tokens[b, s]
                else:
                    cache.reshape(cache.shape[0], -1, head)[b, place] = tokens[b, s]
    return made[0], made[1]


def _place(given: Any, b: int, s: int) -> int | None:
    row = given.kv_cache_update_idx[b].astype(np.int64)
    place = row[s] if len(row) > 1 else row[0] + s
    keys = given.K_cache.size // (given.K_cache.shape[0] * given.V_cache.shape[-1])
    beyond = given.active_blocks_table is None and row[0] + given.attention_mask.shape[3] > keys
    return None if row[0] < 0 or row[0] == 0xFFFFFFFF or beyond else int(place)
