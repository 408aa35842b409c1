"""`transformer_tkg` in NumPy, of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkilib.core.utils.common_types import QuantizationType
from nkilib.experimental.transformer.attention_block_tkg_reference import attention_block_tkg_reference

Array = np.ndarray[Any, Any]


def transformer_tkg_reference(
    X: Array,
    W_qkvs: Sequence[Array],
    W_outs: Sequence[Array],
    W_gates: Sequence[Array],
    W_ups: Sequence[Array],
    W_downs: Sequence[Array],
    W_gamma_qkvs: Sequence[Array],
    W_gamma_mlps: Sequence[Array],
    K_caches: Sequence[Array],
    V_caches: Sequence[Array],
    RoPE_cos: Array,
    RoPE_sin: Array,
    attention_mask: Array,
    position_ids: Array | None,
    num_layers: int,
    eps: float = 1e-06,
    replica_groups: Sequence[Sequence[int]] | None = None,
    sbuf_residual_and_cc: bool = False,
    clamp_bound: float = 0.0,
    W_gate_scales: Sequence[Array] | None = None,
    W_up_scales: Sequence[Array] | None = None,
    W_down_scales: Sequence[Array] | None = None,
    dtype_mode: Any = None,
) -> Array:
    """Hidden states after all layers, in float64; caches stay as they are."""
    hidden = X.astype(np.float64)
    for layer in range(num_layers):
        options: dict[str, Any] = {
            **{"X": hidden, "X_hidden_dim_actual": None, "rmsnorm_X_enabled": True, "rmsnorm_X_eps": eps},
            **{"rmsnorm_X_gamma": W_gamma_qkvs[layer], "W_qkv": W_qkvs[layer], "bias_qkv": None},
            **{"quantization_type_qkv": QuantizationType.NONE, "weight_dequant_scale_qkv": None},
            **{"input_dequant_scale_qkv": None, "rmsnorm_QK_pre_rope_enabled": False, "rmsnorm_QK_pre_rope_eps": eps},
            **{"rmsnorm_QK_pre_rope_W_Q": None, "rmsnorm_QK_pre_rope_W_K": None, "cos": RoPE_cos, "sin": RoPE_sin},
            **{"rope_contiguous_layout": True, "rmsnorm_QK_post_rope_enabled": False, "rmsnorm_QK_post_rope_eps": eps},
            **{"rmsnorm_QK_post_rope_W_Q": None, "rmsnorm_QK_post_rope_W_K": None, "K_cache_transposed": True},
            **{"active_blocks_table": None, "K_cache": K_caches[layer], "V_cache": V_caches[layer]},
            **{"attention_mask": attention_mask, "sink": None, "update_cache": False, "kv_cache_update_idx": None},
            **{"W_out": W_outs[layer], "bias_out": None, "quantization_type_out": QuantizationType.NONE},
            **{"weight_dequant_scale_out": None, "input_dequant_scale_out": None},
            **{"transposed_out": False, "out_in_sb": False},
        }
        attention, _, _ = attention_block_tkg_reference(**options)
        hidden = hidden + attention.reshape(hidden.shape)
        normed = (
            hidden / np.sqrt((hidden**2).mean(axis=2, keepdims=True) + eps) * W_gamma_mlps[layer].astype(np.float64)
        )
        gate = normed @ _wide(W_gates[layer], W_gate_scales, layer)
        gated = gate / (1.0 + np.exp(-gate)) * (normed @ _wide(W_ups[layer], W_up_scales, layer))
        hidden = hidden + gated @ _wide(W_downs[layer], W_down_scales, layer)
    return hidden


def _wide(weights: Array, scales: Sequence[Array] | None, layer: int) -> Array:
    wide = weights.astype(np.float64)
    return wide if scales is None else wide * scales[layer][0:1].astype(np.float64)
