"""``_pre_prod_kernels.mlp_tkg.mlp_tkg_isa``: the MLP of a decoding step, which returns its result."""

from __future__ import annotations

from typing import Any

from nkilib import limits
from nkilib.core.mlp.mlp import mlp
from nkilib.core.utils.common_types import ActFnType, NormType, QuantizationType

__all__ = ["MLP_TKG_FP8_ENABLED", "nki_mlp_tkg_isa_kernel"]

MLP_TKG_FP8_ENABLED = True
"""Weights may be float8."""


def nki_mlp_tkg_isa_kernel(
    hidden: Any,
    gate_w: Any,
    up_w: Any,
    down_w: Any,
    attn_output: Any = None,
    norm_weights: Any = None,
    gate_w_scale: Any = None,
    up_w_scale: Any = None,
    down_w_scale: Any = None,
    eps: float = 1e-6,
    norm_type: NormType = NormType.NO_NORM,
    store_add: bool = False,
    input_quantized: bool = False,
    act_fn: ActFnType = ActFnType.SiLU,
) -> Any:
    """The MLP of each token, of ``hidden + attn_output`` where there is one.

    Args:
        hidden, attn_output: (B, S, H).
        gate_w, up_w: (H, I).
        down_w: (I, H).
        norm_weights: (1, H); read with RMS_NORM alone.
        gate_w_scale, up_w_scale, down_w_scale: float32 (128, I) and (128, H) of columns of float8 weights, or None.
        eps: added to the mean of the squares.
        norm_type: NO_NORM, RMS_NORM or RMS_NORM_SKIP_GAMMA.
        store_add: whether the sum is returned too.
        input_quantized: False.
        act_fn: of the gate.

    Returns:
        (B, S, H); with `store_add` that and the sum.

    Raises:
        KernelLimit: hidden states of 8 bits, `store_add` without a sum, and what `mlp` refuses.
    """
    limits.not_built({"input_quantized": input_quantized or None}, "nki_mlp_tkg_isa_kernel")
    limits.one_of("norm_type", norm_type, (NormType.NO_NORM, NormType.RMS_NORM, NormType.RMS_NORM_SKIP_GAMMA))
    sum_of = attn_output is not None or not store_add
    limits.need(sum_of, "store_add", True, "there is a sum where attn_output is given", "pass attn_output")
    made = mlp(
        hidden,
        gate_w,
        up_w,
        down_w,
        normalization_weights_tensor=norm_weights if norm_type is NormType.RMS_NORM else None,
        normalization_type=norm_type,
        fused_add_tensor=attn_output,
        store_fused_add_result=store_add,
        activation_fn=act_fn,
        quantization_type=QuantizationType.NONE if gate_w_scale is None else QuantizationType.ROW,
        gate_w_scale=gate_w_scale,
        up_w_scale=up_w_scale,
        down_w_scale=down_w_scale,
        eps=eps,
    )
    return tuple(made) if store_add else made[0]
