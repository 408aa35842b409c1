"""``_pre_prod_kernels.attention_token_gen``: attention of a decoding step, and all of it from hidden states on."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.attention.attention_tkg import attention_tkg
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig
from nkilib.core.utils.common_types import QuantizationType
from nkilib.experimental.transformer.attention_block_tkg import attention_block_tkg
from nkilib.neuronxcc_kernels.decoding import joined_masks, paged_mask, slots
from nkilib.streaming import result, sbuf, spans, store

__all__ = ["attention_token_gen_kernel", "llama3_nki_attention_block_token_gen_kernel"]


def attention_token_gen_kernel(
    Q: Any,
    K: Any,
    V: Any,
    K_cache: Any,
    V_cache: Any,
    mask_cache: Any,
    mask_active: Any,
    K_cache_transposed: bool = True,
) -> Any:
    """Attention of new tokens, whose queries are scaled already, over a cache.

    The new tokens take the place of the last S of the keys that the mask is of, as in the published kernel.

    Args:
        Q: (B, d, N, S).
        K: (B, d, S).
        V: (B, S, d).
        K_cache: (B, d, keys), or (B, keys, d).
        V_cache: (B, keys, d).
        mask_cache: (B, N, S, looked at), 0 where a key does not count.
        mask_active: (B, N, S, S), the same of the new tokens; a single one always counts.
        K_cache_transposed: which of its layouts K_cache has.

    Returns:
        (d, B * N * S) in the dtype of `Q`.

    Raises:
        KernelLimit: shapes that do not belong together, and what `attention_tkg` refuses.
    """
    sizes = limits.shape("Q", Q, ("B", "d", "N", "S"))
    batch, head, heads, new = (sizes[name] for name in ("B", "d", "N", "S"))
    limits.shape("V", V, ("B", "S", "d"), sizes)
    length = limits.shape("V_cache", V_cache, ("B", "keys", "d"), sizes)["keys"]
    limits.shape("K_cache", K_cache, ("B", "d", "keys") if K_cache_transposed else ("B", "keys", "d"), sizes)
    cfg = AttnTKGConfig(
        bs=batch,
        q_head=heads,
        s_active=new,
        curr_sprior=mask_cache.shape[-1],
        full_sprior=length,
        d_head=head,
        tp_k_prior=not K_cache_transposed,
        out_in_sb=True,
    )
    mask = joined_masks(mask_cache, mask_active)
    values = V.reshape((batch, 1, new, head))
    k_prior, v_prior = (each.reshape((batch, 1, *each.shape[1:])) for each in (K_cache, V_cache))
    tile = sbuf((head, batch * heads * new), Q.dtype)
    attention_tkg(Q, K, values, k_prior, v_prior, mask, tile, cfg, None)
    made = result(tuple(tile.shape), Q.dtype)
    for rows in spans(head, -(-head // int(nl.num_programs(0))), shared=True):
        store(made[rows], tile[rows])
    return made


def llama3_nki_attention_block_token_gen_kernel(
    X: Any,
    W_qkv: Any,
    W_gamma: Any,
    rmsnorm_eps: float,
    cos: Any,
    sin: Any,
    W_out: Any,
    K_cache: Any,
    V_cache: Any,
    mask_cache: Any,
    mask_active: Any,
    position_ids: Any,
    update_cache: bool,
    active_blocks_table: Any = None,
    K_cache_transposed: bool = True,
    fused_rmsnorm: bool = True,
    pre_rope_rmsnorm: bool = False,
    skip_rope: bool = False,
    rope_first_second_half_impl: bool = True,
    qk_norm: bool = False,
    qk_norm_eps: float = 1e-6,
    bias_out: Any = None,
    bias_qkv: Any = None,
    use_cascaded_attn: bool = False,
    sink: Any = None,
    use_online_softmax: bool = True,
    H_actual: int | None = None,
) -> Any:
    """The attention half of a layer in a decoding step: norm, projection, rotation, attention, projection.

    Args:
        X: (B, S, H).
        W_qkv: (H, (N + 2) * d): queries of N heads, keys and values of one.
        W_gamma: (1, H), factors of the norm; not read without it.
        rmsnorm_eps: added to the mean of the squares.
        cos, sin: (d / 2, B, S); not read with `skip_rope`.
        W_out: (N * d, H).
        K_cache: (B, 1, d, keys), or (B, 1, keys, d); the 1 may be missing. Paged: (blocks, block length, 1, d).
        V_cache: (B, 1, keys, d), or paged like keys.
        mask_cache: (B, N, S, looked at), 0 where a key does not count; the new tokens take the place of the last S.
            With `use_cascaded_attn` (looked at, B, N, S), which has the mask of the new tokens in its last S rows.
        mask_active: (B, N, S, S), the same of the new tokens; a single one always counts.
        position_ids: (B, S) int32: where new tokens go in the cache.
        update_cache: whether the caches are written; otherwise the new keys and values are returned.
        active_blocks_table: (B, blocks) int32, the blocks of each sequence in a paged cache.
        K_cache_transposed: which of its layouts K_cache has.
        fused_rmsnorm: whether hidden states are normalised.
        qk_norm, qk_norm_eps: whether queries and keys are normalised, after they are rotated; with `pre_rope_rmsnorm`
            before.
        skip_rope: whether queries and keys stay as they are.
        rope_first_second_half_impl: pairs are elements of the two halves of a head, otherwise neighbours.
        bias_out, bias_qkv: (1, H) and (1, (N + 2) * d), or None.
        sink: (N, 1), or None.
        use_online_softmax: a choice of the published kernel; this one chooses for itself, which is told.
        H_actual: features that count, where the others are padding with zeros; None for all.

    Returns:
        (B * S, H); then both caches, or the new keys (d, B, S) and values (B, S, d).

    Raises:
        KernelLimit: shapes that do not belong together, and what `attention_block_tkg` refuses.
    """
    limits.without_effect(
        "llama3_nki_attention_block_token_gen_kernel",
        "as this kernel chooses how to add exponentials",
        use_online_softmax=None if use_online_softmax else False,
    )
    paged = active_blocks_table is not None
    keys, values = (_cache(each, paged) for each in (K_cache, V_cache))
    mask = mask_cache if use_cascaded_attn else joined_masks(mask_cache, mask_active)
    if paged:
        mask = paged_mask(mask, keys.shape[1])
        places = slots(active_blocks_table, position_ids, keys.shape[1]) if update_cache else None
    else:
        places = position_ids[:, 0:1] if update_cache else None
    before = qk_norm and pre_rope_rmsnorm
    out, *made = attention_block_tkg(
        X=X,
        X_hidden_dim_actual=H_actual,
        rmsnorm_X_enabled=fused_rmsnorm,
        rmsnorm_X_eps=rmsnorm_eps,
        rmsnorm_X_gamma=W_gamma if fused_rmsnorm else None,
        W_qkv=W_qkv,
        bias_qkv=bias_qkv,
        quantization_type_qkv=QuantizationType.NONE,
        weight_dequant_scale_qkv=None,
        input_dequant_scale_qkv=None,
        rmsnorm_QK_pre_rope_enabled=before,
        rmsnorm_QK_pre_rope_eps=qk_norm_eps,
        rmsnorm_QK_pre_rope_W_Q=None,
        rmsnorm_QK_pre_rope_W_K=None,
        cos=None if skip_rope else cos,
        sin=None if skip_rope else sin,
        rope_contiguous_layout=rope_first_second_half_impl,
        rmsnorm_QK_post_rope_enabled=qk_norm and not before,
        rmsnorm_QK_post_rope_eps=qk_norm_eps,
        rmsnorm_QK_post_rope_W_Q=None,
        rmsnorm_QK_post_rope_W_K=None,
        K_cache_transposed=K_cache_transposed,
        active_blocks_table=active_blocks_table,
        K_cache=keys,
        V_cache=values,
        attention_mask=mask,
        sink=sink,
        update_cache=update_cache,
        kv_cache_update_idx=places,
        W_out=W_out,
        bias_out=bias_out,
        quantization_type_out=QuantizationType.NONE,
        weight_dequant_scale_out=None,
        input_dequant_scale_out=None,
        transposed_out=False,
        out_in_sb=False,
    )
    if update_cache:
        return out, K_cache, V_cache
    new_keys, new_values = made
    return out, new_keys, new_values.reshape((new_values.shape[0], *new_values.shape[2:]))


def _cache(cache: Any, paged: bool) -> Any:
    """A paged cache without the dimension of its one head; another one as it is."""
    if not paged or len(cache.shape) == 3:
        return cache
    limits.shape("a paged cache", cache, ("blocks", "block length", 1, "d"))
    return cache.reshape((cache.shape[0], cache.shape[1], cache.shape[3]))
