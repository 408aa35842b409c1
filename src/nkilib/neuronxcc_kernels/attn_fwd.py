"""``_pre_prod_kernels.attn_fwd``: attention of a prompt, with a prefix, sinks and windows."""

from __future__ import annotations

import inspect
from typing import Any

from nkilib import limits
from nkilib.core.attention.attention_cte import attention_cte

__all__ = ["NATIVE_GQA_TP_SUPPORT", "TRN1_NO_SHARED_CONSTANT", "attention_nki_kernel_adapter"]

NATIVE_GQA_TP_SUPPORT = True
"""Queries may have more heads than keys, and queries and keys may come as rows."""
TRN1_NO_SHARED_CONSTANT = True
"""The kernel runs on trn1."""

CAUSAL = {"AttentionMMSoftmaxMMWithoutSwap": False, "CausalAttentionMMSoftmaxMMWithoutSwap": True}
"""Which keys a query sees, by the name of the kernel."""


def attention_nki_kernel_adapter(
    q: Any,
    k: Any,
    v: Any,
    scale: float = 1.0,
    kernel_name: str = "CausalAttentionMMSoftmaxMMWithoutSwap",
    k_prior: Any = None,
    v_prior: Any = None,
    prior_used_len: Any = None,
    sink: Any = None,
    sliding_window: int | None = None,
    do_out_tp: bool = False,
    tp_q: bool = False,
    tp_k: bool = False,
    use_dma_transpose: bool = False,
    global_cp_deg: int | None = None,
    cp_offset: Any = None,
) -> Any:
    """Attention of (batch * heads) sequences.

    Args:
        q: (B, d, S), or (B, S, d) with `tp_q`.
        k: (B_kv, d, S), or (B_kv, S, d) with `tp_k`.
        v: (B_kv, S, d).
        scale: of the scores.
        kernel_name: "AttentionMMSoftmaxMMWithoutSwap", or with "Causal" before it.
        k_prior, v_prior, prior_used_len: a prefix, and how much of it is used.
        sink: (B, 1).
        sliding_window: keys that a query sees; None or 0 for all.
        do_out_tp: the result is (B, d, S), else (B, S, d).
        use_dma_transpose: a choice of the published kernel; this one chooses for itself, which is told.
        global_cp_deg, cp_offset: where a rank has a part of the queries.

    Returns:
        The result in the dtype of `q`.

    Raises:
        KernelLimit: another name, and what `attention_cte` refuses.
    """
    limits.one_of("kernel_name", kernel_name, tuple(CAUSAL))
    transposes_are_chosen("attention_nki_kernel_adapter", use_dma_transpose)
    return attention_cte(
        q,
        k,
        v,
        scale=scale,
        causal_mask=CAUSAL[kernel_name],
        k_prior=k_prior,
        v_prior=v_prior,
        prior_used_len=prior_used_len,
        sink=sink,
        sliding_window=sliding_window,
        tp_q=tp_q,
        tp_k=tp_k,
        tp_out=do_out_tp,
        global_cp_deg=global_cp_deg,
        cp_offset=cp_offset,
    )


attention_nki_kernel_adapter.sign = inspect.signature(attention_nki_kernel_adapter)  # type: ignore[attr-defined]
"""Models ask for the parameters by this name."""


def transposes_are_chosen(kernel: str, use_dma_transpose: bool) -> None:
    """Tell that this choice has no effect."""
    limits.without_effect(
        kernel, "as this kernel chooses how to transpose", use_dma_transpose=use_dma_transpose or None
    )
