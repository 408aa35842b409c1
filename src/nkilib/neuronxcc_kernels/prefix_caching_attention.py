"""``_private_kernels.prefix_caching_attention``: attention of a prompt behind a prefix that is in a cache."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.neuronxcc_kernels.outputs import give
from nkilib.streaming import load, result, sbuf, store

__all__ = ["prefix_caching_attention_fwd_isa_kernel"]


def prefix_caching_attention_fwd_isa_kernel(
    q: Any,
    k_active: Any,
    v_active: Any,
    k_prior: Any,
    v_prior: Any,
    prior_mask: Any,
    scale: float,
    out: Any,
    kernel_name: str = "V2CausalAttentionMMSoftmaxMMWithoutSwap",
) -> None:
    """Causal attention over a prefix and the new keys.

    Args:
        q: (B, d, S).
        k_active: (B, S, d).
        v_active: (B, S, d).
        k_prior, v_prior: (B, S_prior, d).
        prior_mask: (1, S_prior), whole numbers: ones for the part of the prefix that is used, then zeros.
        scale: of the scores.
        out: (B, d, S), written.
        kernel_name: "V2CausalAttentionMMSoftmaxMMWithoutSwap".

    Raises:
        KernelLimit: another name or shape, and what `attention_cte` refuses.
    """
    limits.one_of("kernel_name", kernel_name, ("V2CausalAttentionMMSoftmaxMMWithoutSwap",))
    d = q.shape[1]
    limits.shape("k_active", k_active, (k_active.shape[0], v_active.shape[1], d))
    limits.shape("prior_mask", prior_mask, (1, k_prior.shape[1]))
    made = attention_cte(
        q,
        k_active,
        v_active,
        scale=scale,
        k_prior=k_prior,
        v_prior=v_prior,
        prior_used_len=_length(prior_mask),
        tp_q=False,
        tp_k=True,
        tp_out=True,
    )
    give(made, out)


def _length(mask: Any) -> Any:
    """How many elements of a row are 1: one number in HBM."""
    length = sbuf((1, 1), nl.float32)
    nisa.tensor_reduce(dst=length, op=nl.add, data=load(mask, nl.float32), axis=(1,))
    whole = sbuf((1, 1), nl.int32)
    nisa.tensor_copy(dst=whole, src=length)
    made = result((1, 1), nl.int32)
    store(made, whole)
    return made.reshape((1,))
