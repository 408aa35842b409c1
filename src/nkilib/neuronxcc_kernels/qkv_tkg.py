"""``_pre_prod_kernels.qkv_tkg_impl``: queries, keys and values of a decoding step."""

from __future__ import annotations

from typing import Any

from nkilib import limits
from nkilib.core.qkv.qkv import qkv
from nkilib.core.utils.common_types import NormType, QKVOutputLayout, QuantizationType

__all__ = ["nki_qkv_projection_tkg_impl"]


def nki_qkv_projection_tkg_impl(
    hidden: Any,
    qkv_w: Any,
    norm_w: Any = None,
    fused_add: bool = False,
    mlp_prev: Any = None,
    attn_prev: Any = None,
    d_head: int | None = None,
    output_layout: QKVOutputLayout = QKVOutputLayout.BSD,
    eps: float = 1e-6,
    norm_type: NormType = NormType.NO_NORM,
    qkvInSB: bool = False,
    qkv_bias: Any = None,
    norm_bias: Any = None,
    hidden_actual: int | None = None,
    B: int | None = None,
    S: int | None = None,
    H: int | None = None,
    num_q_heads: int | None = None,
    num_kv_heads: int | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    qkv_w_scales: Any = None,
    qkv_in_scales: Any = None,
) -> Any:
    """Queries, keys and values of hidden states.

    Args:
        hidden: (B, S, H).
        qkv_w: (H, I).
        norm_w, norm_bias: (1, H), of the norms that have them.
        fused_add, mlp_prev, attn_prev: not built.
        d_head, num_q_heads, num_kv_heads: read where heads count, which is in other layouts than BSD, and with STATIC.
        output_layout: of the result.
        eps: added to the mean of the squares.
        norm_type: of the hidden states.
        qkvInSB: False.
        qkv_bias: (1, I), or None.
        hidden_actual: features that count, where the others are padding with zeros; None for all.
        B, S, H: the sizes of `hidden`, if given.
        quantization_type: NONE, STATIC or ROW.
        qkv_w_scales, qkv_in_scales: as `qkv` takes them.

    Returns:
        In `output_layout`.

    Raises:
        KernelLimit: other sizes, what is not built, and what `qkv` refuses.
    """
    asked = {"fused_add": fused_add or None, "mlp_prev": mlp_prev, "attn_prev": attn_prev, "qkvInSB": qkvInSB or None}
    limits.not_built(asked, "nki_qkv_projection_tkg_impl")
    for name, wanted, size in zip(("B", "S", "H"), (B, S, H), hidden.shape, strict=True):
        limits.one_of(name, wanted, (None, size))
    by_heads = output_layout is not QKVOutputLayout.BSD or quantization_type is QuantizationType.STATIC
    plain = hidden_actual in (None, hidden.shape[2])
    return qkv(
        hidden,
        qkv_w,
        output_layout=output_layout,
        bias=qkv_bias,
        quantization_type=quantization_type,
        qkv_w_scale=qkv_w_scales,
        qkv_in_scale=qkv_in_scales,
        fused_norm_type=norm_type,
        gamma_norm_weights=norm_w,
        layer_norm_bias=norm_bias,
        norm_eps=eps,
        hidden_actual=None if plain else hidden_actual,
        d_head=d_head if by_heads else None,
        num_q_heads=num_q_heads if by_heads else None,
        num_kv_heads=num_kv_heads if by_heads else None,
    )
