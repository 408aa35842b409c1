"""PyTorch's fused transformer operators, which `torch.nn` calls in evaluation mode, as what they compute."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F

_KEYS, _HEADS = 1, 2
"""Values of ``mask_type``: a mask of keys for each sequence, or of each head; else one for all (ATen)."""


def fast_path() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator; PyTorch itself has none for them."""
    aten = torch.ops.aten
    return {
        aten._native_multi_head_attention.default: _attention,
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    }


def _attention(  # noqa: PLR0913 -- the operator's signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``(output, weights)``; a mask is true where nobody looks."""
    inputs = (query, key, value)
    products = [
        F.linear(each, weight, bias)
        for each, weight, bias in zip(inputs, qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    ]
    q, k, v = (each.unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2) for each in products)
    scores = (q / sqrt(embed_dim // num_head)) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(_mask_of_heads(mask, mask_type), float("-inf"))
    weights = scores.softmax(-1)
    output = F.linear((weights @ v).transpose(1, 2).flatten(-2), proj_weight, proj_bias)
    if not need_weights:
        return output, query.new_empty(0)
    return output, weights.mean(1) if average_attn_weights else weights


def _mask_of_heads(mask: torch.Tensor, mask_type: int | None) -> torch.Tensor:
    """A mask that broadcasts to ``(batch, heads, queries, keys)``; numbers other than 0 count as true."""
    mask = mask.to(torch.bool)
    if mask_type == _KEYS:
        return mask[:, None, None, :]
    return mask if mask_type == _HEADS else mask[None, None]


def _encoder_layer(  # noqa: PLR0913 -- the operator's signature
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    def attend(x: torch.Tensor) -> torch.Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attention(x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type)[0]

    def feed(x: torch.Tensor) -> torch.Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        middle = src + attend(first(src))
        return middle + feed(second(middle))
    middle = first(src + attend(src))
    return second(middle + feed(middle))
