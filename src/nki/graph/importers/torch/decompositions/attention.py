"""PyTorch's fused attention, with the logarithms of the sums that its derivative and divided sequences need."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from torch import Tensor


def fused_attention() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator; PyTorch has none with these results."""
    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention.default: _flash,
        aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
        aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
    }


def beside_attention(query: Tensor, key: Tensor) -> tuple[Any, ...]:
    """What the operator of graphics cards returns after its two results; its derivative reads none of it."""
    seed, offset = query.new_empty(2, dtype=torch.uint64), query.new_empty((), dtype=torch.uint64)
    return None, None, query.shape[2], key.shape[2], seed, offset, query.new_empty(0)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Results (batch, heads, queries, features), heads lying behind queries, and float32 (batch, heads, queries)."""
    output, _ = torch.ops.aten._scaled_dot_product_attention_math.default(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=query.size(1) != key.size(1)
    )
    sums = torch.logsumexp(_scores(query, key, is_causal, attn_mask, scale), -1)
    return output.transpose(1, 2).contiguous().transpose(1, 2), sums


def _scores(query: Tensor, key: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None) -> Tensor:
    """What the softmax of attention is of, in float32; spelled as PyTorch does, so that both compute it once."""
    factor = 1 / sqrt(query.size(-1)) if scale is None else scale
    root = sqrt(abs(factor))
    query, key = _wide(query), _wide(key)
    key = key.repeat_interleave(query.size(1) // key.size(1), 1) if query.size(1) != key.size(1) else key
    scores = (query * (root if factor >= 0 else -root)) @ (key.transpose(-2, -1) * root)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        return scores + torch.where(seen, 0.0, float("-inf"))
    return scores if mask is None else scores + mask


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by query, key and value, with the weights computed anew."""
    factor = 1 / sqrt(query.size(-1)) if scale is None else scale
    weights = (_scores(query, key, is_causal, attn_mask, scale) - logsumexp.unsqueeze(-1)).exp()
    gradient, q, k, v = map(_wide, (grad_out, query, key, value))
    repeated = query.size(1) // key.size(1)
    if repeated > 1:
        k, v = (each.repeat_interleave(repeated, 1) for each in (k, v))
    through = (gradient * _wide(out)).sum(-1, keepdim=True)
    inner = weights * (gradient @ v.transpose(-2, -1) - through) * factor
    by_key, by_value = inner.transpose(-2, -1) @ q, weights.transpose(-2, -1) @ gradient
    if repeated > 1:
        by_key, by_value = (each.unflatten(1, (-1, repeated)).sum(2) for each in (by_key, by_value))
    return (inner @ k).to(query.dtype), by_key.to(key.dtype), by_value.to(value.dtype)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    results = _attention(query, key, value, dropout_p, is_causal, scale=scale)
    return *results, *beside_attention(query, key)


def _flash_backward(  # noqa: PLR0913 -- the operator's signature
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    given = (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal)
    return _attention_backward(*given, scale=scale)
