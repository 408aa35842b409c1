"""The MLP in NumPy, as `nkilib.core.mlp.mlp` computes it but for rounding."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

from nkilib.core.utils.common_types import ActFnType, ComputationMode, NormType, QuantizationType


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


ACTIVATIONS = {
    ActFnType.SiLU: lambda x: x * _sigmoid(x),
    ActFnType.GELU: lambda x: 0.5 * x * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0))),
    ActFnType.GELU_Tanh_Approx: lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
    ActFnType.Swish: lambda x: x * _sigmoid(1.702 * x),
    ActFnType.ReLU: lambda x: np.maximum(x, 0.0),
    ActFnType.SquaredReLU: lambda x: np.maximum(x, 0.0) ** 2,
}


def mlp_reference(
    hidden_tensor: Any,
    gate_proj_weights_tensor: Any,
    up_proj_weights_tensor: Any,
    down_proj_weights_tensor: Any,
    normalization_weights_tensor: Any = None,
    gate_proj_bias_tensor: Any = None,
    up_proj_bias_tensor: Any = None,
    down_proj_bias_tensor: Any = None,
    normalization_bias_tensor: Any = None,
    fused_add_tensor: Any = None,
    store_fused_add_result: bool = False,
    activation_fn: ActFnType = ActFnType.SiLU,
    normalization_type: NormType = NormType.NO_NORM,
    quantization_type: QuantizationType = QuantizationType.NONE,
    gate_w_scale: Any = None,
    up_w_scale: Any = None,
    down_w_scale: Any = None,
    gate_up_in_scale: Any = None,
    down_in_scale: Any = None,
    quant_clipping_bound: float = 0.0,
    output_dtype: Any = None,
    store_output_in_sbuf: bool = False,
    eps: float = 1e-6,
    skip_gate_proj: bool = False,
    use_tkg_gate_up_proj_column_tiling: bool = True,
    use_tkg_down_proj_column_tiling: bool = True,
    use_tkg_down_proj_optimized_layout: bool = False,
    use_contiguous_x4_gate_up: bool = False,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    force_cte_mode: bool = False,
    mode: ComputationMode = ComputationMode.AUTO,
    sbm: Any = None,
    mx_dummy_scale_hbm: Any = None,
    transposed_in: bool = False,
    transposed_out: bool = False,
    dtype_mode: Any = None,
    gate_up_w_layout: Any = None,
) -> list[Any]:
    """What the kernel puts into HBM on one core, in float64; the sum as it is rounded to the dtype of hidden_tensor."""
    if use_tkg_down_proj_optimized_layout:
        inner, features = down_proj_weights_tensor.shape
        parted = down_proj_weights_tensor.reshape(inner, features // 128, 128)
        down_proj_weights_tensor = parted.transpose(0, 2, 1).reshape(inner, features)
    hidden = _wide(hidden_tensor)
    hidden = hidden if hidden.ndim == 3 else hidden[None]
    if fused_add_tensor is not None:
        hidden = _wide((hidden + _wide(fused_add_tensor)).astype(hidden_tensor.dtype))
    x = normalised(hidden, normalization_type, normalization_weights_tensor, normalization_bias_tensor, eps)
    decoding = mode is ComputationMode.DECODE or (mode is ComputationMode.AUTO and x.shape[0] * x.shape[1] <= 96)
    static = quantization_type is QuantizationType.STATIC and (force_cte_mode or not decoding)
    x = rounded(x, gate_up_in_scale, up_proj_weights_tensor.dtype) if static else x
    up = projected(x, up_proj_weights_tensor, up_w_scale, up_proj_bias_tensor)
    up = np.clip(up, up_clamp_lower_limit, up_clamp_upper_limit)
    if skip_gate_proj:
        inner = ACTIVATIONS[activation_fn](up)
    else:
        gate = projected(x, gate_proj_weights_tensor, gate_w_scale, gate_proj_bias_tensor)
        inner = ACTIVATIONS[activation_fn](np.clip(gate, gate_clamp_lower_limit, gate_clamp_upper_limit)) * up
    inner = rounded(inner, down_in_scale, down_proj_weights_tensor.dtype) if static else inner
    out = projected(inner, down_proj_weights_tensor, down_w_scale, down_proj_bias_tensor)
    return [out, hidden] if store_fused_add_result else [out]


def projected(x: Any, weights: Any, scale: Any, bias: Any) -> Any:
    """``x @ weights * scale + bias``; the rows of a scale are alike."""
    sums = x @ _wide(weights)
    sums = sums if scale is None else sums * _wide(scale)[0]
    return sums if bias is None else sums + _wide(bias)


def rounded(x: Any, scale: Any, dtype: Any) -> Any:
    """Activations as multiples of a scale that have 8 bits; those that are too large are the largest."""
    largest = {"float8_e4m3": 240.0, "float8_e5m2": 57344.0}[dtype.name]
    return _wide(np.clip(x / scale[0, 0], -largest, largest).astype(dtype)) * scale[0, 0]


def normalised(x: Any, kind: NormType, weights: Any, bias: Any, eps: float) -> Any:
    """Each token without its mean (LAYER_NORM), with mean square 1, times weights, plus bias."""
    if kind is NormType.NO_NORM:
        return x
    x = x - x.mean(-1, keepdims=True) if kind is NormType.LAYER_NORM else x
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    x = x if weights is None else x * _wide(weights)
    return x if bias is None else x + _wide(bias)


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.float64)
