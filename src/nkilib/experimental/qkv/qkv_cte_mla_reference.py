"""What `qkv_mla_mx` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.experimental.mla.deepseek.latents_reference import normalized, rotated, unpermuted
from nkilib.experimental.mla.deepseek.packed_reference import quantized, rounded, weights


def qkv_mla_mx_reference(
    x_hbm: Any,
    wqkv_a_hbm: Any,
    wqkv_a_scale_hbm: Any,
    wq_b_hbm: Any,
    wq_b_scale_hbm: Any,
    q_norm_gamma_hbm: Any,
    wkv_b_hbm: Any,
    wkv_b_scale_hbm: Any,
    kv_norm_gamma_hbm: Any,
    cos_cache_hbm: Any,
    sin_cache_hbm: Any,
    n_heads: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    kv_lora_rank: int,
    qk_lora_rank: int,
    norm_eps: float = 1e-6,
) -> tuple[Any, Any, Any]:
    """Queries, keys and values in float64."""
    states = unpermuted(np.asarray(x_hbm).astype(np.float64))
    made = quantized(states) @ weights(wqkv_a_hbm, wqkv_a_scale_hbm)
    latent, kv, rest = np.split(made, [qk_lora_rank, qk_lora_rank + kv_lora_rank], axis=-1)
    latent = rounded(normalized(unpermuted(rounded(latent)), q_norm_gamma_hbm, norm_eps))
    kv = rounded(normalized(unpermuted(rounded(kv)), kv_norm_gamma_hbm, norm_eps))
    shape, turn = (*states.shape[:2], n_heads, -1), (cos_cache_hbm, sin_cache_hbm)
    queries = (quantized(latent) @ weights(wq_b_hbm, wq_b_scale_hbm)).reshape(shape)
    both = (quantized(kv) @ weights(wkv_b_hbm, wkv_b_scale_hbm)).reshape(shape)
    nope, pe = queries[..., :qk_nope_head_dim], rotated(queries[..., qk_nope_head_dim:], *turn, interleaved=False)
    shared = np.repeat(rotated(rest[:, :, None], *turn, interleaved=False), n_heads, axis=2)
    keys = np.concatenate([both[..., :qk_nope_head_dim], shared], axis=-1)
    return np.concatenate([nope, pe], axis=-1), keys, both[..., qk_nope_head_dim:]
