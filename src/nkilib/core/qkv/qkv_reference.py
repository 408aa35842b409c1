"""The projection to queries, keys and values in NumPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkilib.core.utils.common_types import (
    DtypeMode,
    NormType,
    QKNormConfig,
    QKVOutputLayout,
    QKVWeightLayout,
    QuantizationType,
    StridedInputConfig,
)
from nkilib.fp8_reference import quantized_reference


def qkv_reference(
    input: NDArray,
    fused_qkv_weights: NDArray,
    output_layout: QKVOutputLayout = QKVOutputLayout.BSD,
    bias: NDArray | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    qkv_w_scale: NDArray | None = None,
    qkv_in_scale: NDArray | None = None,
    fused_residual_add: bool | None = False,
    mlp_prev: NDArray | None = None,
    attention_prev: NDArray | None = None,
    fused_norm_type: NormType = NormType.NO_NORM,
    gamma_norm_weights: NDArray | None = None,
    layer_norm_bias: NDArray | None = None,
    norm_eps: float = 1e-06,
    hidden_actual: int | None = None,
    fused_rope: bool | None = False,
    cos_cache: NDArray | None = None,
    sin_cache: NDArray | None = None,
    k_cos_cache: NDArray | None = None,
    k_sin_cache: NDArray | None = None,
    d_head: int | None = None,
    num_q_heads: int | None = None,
    num_kv_heads: int | None = None,
    k_cache: NDArray | None = None,
    v_cache: NDArray | None = None,
    k_scale: NDArray | None = None,
    v_scale: NDArray | None = None,
    fp8_max: float | None = None,
    fp8_min: float | None = None,
    kv_dtype: Any = None,
    use_block_kv: bool = False,
    transpose_k_cache: bool = False,
    fp8_packed: bool = False,
    block_size: int | None = None,
    slot_mapping: NDArray | None = None,
    store_output_in_sbuf: bool = False,
    sbm: Any = None,
    use_auto_allocation: bool = False,
    load_input_with_DMA_transpose: bool = True,
    is_h_dim_4h_transposed: bool = False,
    weight_layout: QKVWeightLayout = QKVWeightLayout.CONTIGUOUS,
    transposed_in: bool = False,
    qk_norm_pre_rope: QKNormConfig | None = None,
    qk_norm_post_rope: QKNormConfig | None = None,
    qk_norm_pre_rope_q_gamma: NDArray | None = None,
    qk_norm_pre_rope_k_gamma: NDArray | None = None,
    qk_norm_post_rope_q_gamma: NDArray | None = None,
    qk_norm_post_rope_k_gamma: NDArray | None = None,
    qk_norm_pre_rope_q_beta: NDArray | None = None,
    qk_norm_pre_rope_k_beta: NDArray | None = None,
    qk_norm_post_rope_q_beta: NDArray | None = None,
    qk_norm_post_rope_k_beta: NDArray | None = None,
    strided_input_config: StridedInputConfig | None = None,
    output_hbm: NDArray | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
    q_squared_sum_out: NDArray | None = None,
    k_squared_sum_out: NDArray | None = None,
    v_squared_sum_out: NDArray | None = None,
) -> Any:
    """See `qkv`."""
    given = SimpleNamespace(**locals())
    x = wide(np.swapaxes(input, 1, 2) if transposed_in else input)
    batch, sequence, _ = x.shape
    if fused_residual_add:
        x = x + wide(mlp_prev) + wide(attention_prev)
    added = x.astype(input.dtype)
    y = _projected(_normalised(x, given), given)
    _sum_squares(y, given)
    if d_head is not None and num_q_heads is not None and num_kv_heads is not None:
        y = _heads(y.reshape((batch, sequence, -1, d_head)), given).reshape(y.shape)
    dtype = np.dtype("bfloat16") if quantization_type is QuantizationType.STATIC else input.dtype
    if k_cache is not None:
        return _divided(y, given, dtype)
    if output_layout is not QKVOutputLayout.BSD:
        assert d_head is not None
        by_head = y.reshape((batch, sequence, -1, d_head))
        y = by_head.transpose((2, 0, 1, 3) if output_layout is QKVOutputLayout.NBSd else (2, 0, 3, 1))
    decoding = fused_residual_add and not fused_rope and sequence <= 96 and batch * sequence <= 128
    return (y.astype(dtype), added) if decoding else y.astype(dtype)


def wide(array: NDArray | None) -> NDArray:
    """In float64."""
    assert array is not None
    return array.astype(np.float64)


def _normalised(x: NDArray, given: Any) -> NDArray:
    width, kind = given.hidden_actual or x.shape[-1], given.fused_norm_type
    if kind is NormType.NO_NORM:
        return x
    if kind is NormType.LAYER_NORM:
        x = x - x[..., :width].mean(-1, keepdims=True)
    x = x / np.sqrt(np.square(x[..., :width]).mean(-1, keepdims=True) + given.norm_eps)
    if kind is not NormType.RMS_NORM_SKIP_GAMMA:
        x = x * wide(given.gamma_norm_weights)
    return x if given.layer_norm_bias is None else x + wide(given.layer_norm_bias)


def _projected(x: NDArray, given: Any) -> NDArray:
    scale: Any = 1.0
    if given.quantization_type is QuantizationType.STATIC:
        x = quantized_reference(x, given.qkv_in_scale)
        counts = [given.num_q_heads, given.num_kv_heads, given.num_kv_heads]
        parts = np.repeat(wide(given.qkv_w_scale)[0], [count * given.d_head for count in counts])
        scale = parts * float(given.qkv_in_scale[0, 0])
    elif given.quantization_type is QuantizationType.ROW:
        scale = wide(given.qkv_w_scale)[0]
    y = x @ wide(given.fused_qkv_weights) * scale
    return y if given.bias is None else y + wide(given.bias)


def _sum_squares(y: NDArray, given: Any) -> None:
    """Write sums of squares where the caller wants them."""
    targets = (given.q_squared_sum_out, given.k_squared_sum_out, given.v_squared_sum_out)
    if all(target is None for target in targets):
        return
    ends = [given.num_q_heads * given.d_head, (given.num_q_heads + given.num_kv_heads) * given.d_head]
    for target, part in zip(targets, np.split(y, ends, -1), strict=True):
        if target is not None:
            target[...] = np.square(part).sum(-1, keepdims=True)


def _heads(y: NDArray, given: Any) -> NDArray:
    """Heads (B, S, N, d) of queries and keys, normalised and rotated; those of values as they are."""
    queries = slice(0, given.num_q_heads)
    keys = slice(given.num_q_heads, given.num_q_heads + given.num_kv_heads)
    made = y.copy()
    for kind, here in (("q", queries), ("k", keys)):
        x = _head_norm(y[:, :, here], given, kind, "pre")
        if given.fused_rope:
            other = kind == "k" and given.k_cos_cache is not None
            cos, sin = (given.k_cos_cache, given.k_sin_cache) if other else (given.cos_cache, given.sin_cache)
            first, second = np.split(x, 2, -1)
            turned = np.concatenate([-second, first], -1)
            x = x * wide(cos)[:, :, None] + turned * wide(sin)[:, :, None]
        made[:, :, here] = _head_norm(x, given, kind, "post")
    return made


def _head_norm(x: NDArray, given: Any, kind: str, place: str) -> NDArray:
    config = getattr(given, f"qk_norm_{place}_rope")
    if config is None or getattr(config, f"{kind}_norm") in (None, NormType.NO_NORM):
        return x
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + config.eps)
    gamma = getattr(given, f"qk_norm_{place}_rope_{kind}_gamma")
    gamma = getattr(config, f"{kind}_gamma_norm_weights") if gamma is None else gamma
    return x if gamma is None else x * wide(gamma)


def _divided(y: NDArray, given: Any, dtype: Any) -> tuple[NDArray, NDArray, NDArray]:
    """Queries, and copies of the caches with the keys and values of all tokens."""
    columns = given.num_kv_heads * given.d_head
    queries, keys, values = np.split(y, [y.shape[-1] - 2 * columns, y.shape[-1] - columns], -1)
    caches = []
    for new, cache, scale in ((keys, given.k_cache, given.k_scale), (values, given.v_cache, given.v_scale)):
        made = cache.copy()
        if scale is not None:
            most = 240.0 if given.fp8_max is None else given.fp8_max
            new = np.clip(new / float(scale[0, 0]), -most if given.fp8_min is None else given.fp8_min, most)
        if given.slot_mapping is None:
            made[:, : new.shape[1]] = new.astype(cache.dtype)
        else:
            made.reshape(-1, columns)[given.slot_mapping.ravel()] = new.reshape(-1, columns).astype(cache.dtype)
        caches.append(made)
    return queries.astype(dtype), caches[0], caches[1]
