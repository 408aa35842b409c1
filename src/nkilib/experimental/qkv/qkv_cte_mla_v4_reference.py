"""What `qkv_mla_mx_deepseek_v4` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.experimental.mla.deepseek.latents_reference import normalized, rotated, unpermuted
from nkilib.experimental.mla.deepseek.packed_reference import quantized, rounded, weights


def qkv_mla_mx_deepseek_v4_reference(
    x_hbm: Any,
    wqkv_hbm: Any,
    wqkv_scale_hbm: Any,
    wq_b_hbm: Any,
    wq_b_scale_hbm: Any,
    q_norm_gamma_hbm: Any,
    kv_norm_gamma_hbm: Any,
    cos_cache_hbm: Any,
    sin_cache_hbm: Any,
    n_heads: int,
    head_dim: int,
    qk_rope_head_dim: int,
    kv_lora_rank: int,
    qk_lora_rank: int,
    norm_eps: float = 1e-6,
) -> tuple[Any, Any]:
    """Queries, and what is key and value, in float64."""
    states = unpermuted(np.asarray(x_hbm).astype(np.float64))
    made = quantized(states) @ weights(wqkv_hbm, wqkv_scale_hbm)
    latent, kv = np.split(made, [qk_lora_rank], axis=-1)
    latent = rounded(normalized(unpermuted(rounded(latent)), q_norm_gamma_hbm, norm_eps))
    queries = (quantized(latent) @ weights(wq_b_hbm, wq_b_scale_hbm)).reshape(*states.shape[:2], n_heads, head_dim)
    queries = normalized(queries, np.ones((1, head_dim)), norm_eps)
    kv = normalized(kv, kv_norm_gamma_hbm, norm_eps)
    turn = (cos_cache_hbm, sin_cache_hbm)
    return (
        _behind(queries, head_dim - qk_rope_head_dim, turn),
        _behind(kv[:, :, None], kv_lora_rank, turn)[:, :, 0],
    )


def _behind(values: Any, plain: int, turn: tuple[Any, Any]) -> Any:
    """Values (B, S, heads, columns) whose columns after the plain ones are rotated."""
    return np.concatenate([values[..., :plain], rotated(values[..., plain:], *turn, interleaved=False)], axis=-1)
