"""What `mla_qkv_cte_kernel` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.experimental.mla.deepseek.latents_reference import normalized, packed_states, rotated, unpermuted
from nkilib.experimental.mla.deepseek.packed_reference import quantized, rounded, weights


def mla_qkv_cte_kernel_reference(
    x_hbm_mx: Any,
    wqkv_a_hbm: Any,
    wqkv_a_scale_hbm: Any,
    wq_b_hbm: Any,
    wq_b_scale_hbm: Any,
    q_norm_gamma_hbm: Any,
    kv_norm_gamma_hbm: Any,
    wuk_hbm: Any,
    cos_cache_hbm: Any,
    sin_cache_hbm: Any,
    n_heads: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    kv_lora_rank: int,
    qk_lora_rank: int,
    norm_eps: float = 1e-6,
    qr_qtz_hbm: Any = None,
    qr_scale_hbm: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """Queries that meet latents, and what they meet, in float64; nothing is exported."""
    first = weights(wqkv_a_hbm, wqkv_a_scale_hbm)
    made = packed_states(x_hbm_mx, len(first)) @ first
    latent, kv, keys = np.split(made, [qk_lora_rank, qk_lora_rank + kv_lora_rank], axis=-1)
    latent = rounded(normalized(unpermuted(rounded(latent)), q_norm_gamma_hbm, norm_eps))
    queries = quantized(latent) @ weights(wq_b_hbm, wq_b_scale_hbm)
    nope, pe = np.split(queries.reshape(*latent.shape[:2], n_heads, -1), [qk_nope_head_dim], axis=-1)
    absorb = np.asarray(wuk_hbm).astype(np.float64).reshape(qk_nope_head_dim, n_heads, kv_lora_rank)
    turn = (cos_cache_hbm, sin_cache_hbm)
    return (
        np.einsum("bshn,nhl->bshl", rounded(nope), absorb),
        rotated(pe, *turn, interleaved=True),
        normalized(unpermuted(kv), kv_norm_gamma_hbm, norm_eps),
        rotated(keys[:, :, None], *turn, interleaved=True)[:, :, 0],
    )
