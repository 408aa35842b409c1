"""``_private_kernels.qkv`` and ``_pre_prod_kernels.qkv``: queries, keys and values of hidden states."""

from __future__ import annotations

from typing import Any

from nkilib import limits
from nkilib.core.qkv.qkv import qkv
from nkilib.core.utils.common_types import NormType, QKVOutputLayout
from nkilib.neuronxcc_kernels.outputs import add_to, give

__all__ = ["nki_qkv_projection_isa_kernel", "rmsnorm_qkv_isa_fused_add_kernel", "rmsnorm_qkv_isa_kernel"]


def rmsnorm_qkv_isa_kernel(
    lhs: Any,
    rhs: Any,
    ln_w: Any,
    out: Any,
    kernel_name: str = "QKV",
    eps: float = 1e-6,
    fused_rmsnorm: bool = True,
    bias: Any = None,
    skip_gamma: bool = False,
    use_dma_transpose: bool = False,
) -> None:
    """``out = rms_norm(lhs) @ rhs + bias``.

    Args:
        lhs: (B, S, H), hidden states.
        rhs: (H, I), weights.
        ln_w: (1, H), factors of the norm; not read without the norm, or with `skip_gamma`.
        out: (B, S, I), or (I / d, B, S, d), written.
        kernel_name: "QKV".
        eps: added to the mean of the squares.
        fused_rmsnorm: whether there is a norm.
        bias: (1, I), or None.
        skip_gamma: the factors of the norm are in the weights.
        use_dma_transpose: a choice of the published kernel; this one chooses for itself, which is told.

    Raises:
        KernelLimit: another name or shape, and what `qkv` refuses.
    """
    limits.one_of("kernel_name", kernel_name, ("QKV",))
    limits.without_effect(
        "rmsnorm_qkv_isa_kernel",
        "as this kernel chooses how to transpose",
        use_dma_transpose=use_dma_transpose or None,
    )
    norm = _norm(fused_rmsnorm, skip_gamma)
    give(_projected(lhs, rhs, ln_w, norm, _layout(out), eps, bias, out), out)


def rmsnorm_qkv_isa_fused_add_kernel(
    hidden: Any,
    mlp_prev: Any,
    attn_prev: Any,
    qkv_weights: Any,
    norm_weights: Any,
    out: Any,
    kernel_name: str = "QKV",
    eps: float = 1e-6,
    fused_rmsnorm: bool = True,
    bias: Any = None,
    skip_gamma: bool = False,
) -> None:
    """`rmsnorm_qkv_isa_kernel` of ``hidden + mlp_prev + attn_prev``, which is written to `hidden`."""
    limits.one_of("kernel_name", kernel_name, ("QKV",))
    total = _sum(hidden, mlp_prev, attn_prev)
    norm = _norm(fused_rmsnorm, skip_gamma)
    give(_projected(total, qkv_weights, norm_weights, norm, _layout(out), eps, bias, out), out)


def nki_qkv_projection_isa_kernel(
    hidden: Any,
    qkv_weights: Any,
    norm_weights: Any = None,
    mlp_prev: Any = None,
    attn_prev: Any = None,
    output_layout: QKVOutputLayout = QKVOutputLayout.BSD,
    eps: float = 1e-6,
    norm_type: NormType = NormType.NO_NORM,
    bias: Any = None,
    cos_cache: Any = None,
    sin_cache: Any = None,
    num_q_heads: int | None = None,
    num_kv_heads: int | None = None,
    d_head: int | None = None,
) -> Any:
    """Queries, keys and values; with `mlp_prev` and `attn_prev` of the sum, which is written to `hidden`.

    Args:
        hidden, mlp_prev, attn_prev: (B, S, H).
        qkv_weights: (H, I).
        norm_weights: (1, H), with RMS_NORM.
        output_layout: of the result.
        eps: added to the mean of the squares.
        norm_type: NO_NORM, RMS_NORM or RMS_NORM_SKIP_GAMMA.
        bias: (1, I), or None.
        cos_cache, sin_cache: (B, S, d) of rotated heads, or None.
        num_q_heads, num_kv_heads, d_head: where heads count.

    Returns:
        In `output_layout`.

    Raises:
        KernelLimit: one of `mlp_prev` and `attn_prev` alone, and what `qkv` refuses.
    """
    limits.need(
        (mlp_prev is None) == (attn_prev is None),
        "mlp_prev",
        mlp_prev is not None,
        "mlp_prev and attn_prev are both given or neither",
        "pass zeros for the other one",
    )
    total = hidden if mlp_prev is None else _sum(hidden, mlp_prev, attn_prev)
    rotated = cos_cache is not None
    heads = (num_q_heads or 0) + 2 * (num_kv_heads or 0)
    return qkv(
        total,
        qkv_weights,
        output_layout=output_layout,
        bias=bias,
        fused_norm_type=norm_type,
        gamma_norm_weights=norm_weights if norm_type is NormType.RMS_NORM else None,
        norm_eps=eps,
        fused_rope=rotated,
        cos_cache=cos_cache,
        sin_cache=sin_cache,
        d_head=d_head or (qkv_weights.shape[1] // heads if heads else None),
        num_q_heads=num_q_heads,
        num_kv_heads=num_kv_heads,
    )


def _norm(fused: bool, skip_gamma: bool) -> NormType:
    if not fused:
        return NormType.NO_NORM
    return NormType.RMS_NORM_SKIP_GAMMA if skip_gamma else NormType.RMS_NORM


def _layout(out: Any) -> QKVOutputLayout:
    return QKVOutputLayout.NBSd if len(out.shape) == 4 else QKVOutputLayout.BSD


def _projected(
    hidden: Any, weights: Any, gamma: Any, norm: NormType, layout: QKVOutputLayout, eps: float, bias: Any, out: Any
) -> Any:
    heads = layout is QKVOutputLayout.NBSd
    return qkv(
        hidden,
        weights,
        output_layout=layout,
        bias=bias,
        fused_norm_type=norm,
        gamma_norm_weights=gamma if norm is NormType.RMS_NORM else None,
        norm_eps=eps,
        d_head=out.shape[3] if heads else None,
    )


def _sum(hidden: Any, mlp_prev: Any, attn_prev: Any) -> Any:
    """``hidden += mlp_prev + attn_prev``, and `hidden`."""
    add_to(hidden, mlp_prev, attn_prev)
    return hidden
