"""Attention on the device: one operator, as on PyTorch's own devices, and another one for its derivative.

DTensor and context parallelism have rules for PyTorch's fused operators, not for what attention is made of. PyTorch
chooses among them in C++, for devices that C++ knows, so it is done here. What the operator computes is that of
PyTorch's operator for the CPU, which runs it where the device cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_RANK = 4
"""Batch, heads, positions, features."""


def register(aten: torch.library.Library, key: str, run: Callable[..., Any]) -> None:
    """Give the device the fused operator, its derivative, and the choice of it.

    Args:
        aten: where operators are registered.
        key: of the device.
        run: runs an operator on the device.
    """
    from nki.graph.importers.torch.decompositions.attention import beside_attention

    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    for_cpu_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

    def fused(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        return_debug_mask: bool = False,
        *,
        scale: float | None = None,
    ) -> tuple[Any, ...]:
        results = run(for_cpu, query, key, value, dropout_p, is_causal, scale=scale)
        return *results, *beside_attention(query, key)

    def backward(*args: Any, scale: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
        *tensors, _, _, _, _, dropout_p, is_causal, _, _ = args
        return run(for_cpu_backward, *tensors, dropout_p, is_causal, scale=scale)

    aten.impl("_scaled_dot_product_flash_attention", fused, key)
    aten.impl("_scaled_dot_product_flash_attention_backward", backward, key)
    for each in (key, f"Autograd{key}"):
        aten.impl("scaled_dot_product_attention", _attention, each)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention by the fused operator where it can be, else by what it is made of."""
    aten = torch.ops.aten
    if attn_mask is not None or dropout_p or not _is_fused(query, key, value, enable_gqa):
        rest = attn_mask, dropout_p, is_causal
        return aten.scaled_dot_product_attention.default.decompose(
            query, key, value, *rest, scale=scale, enable_gqa=enable_gqa
        )
    repeated = query.shape[1] // key.shape[1]
    if repeated > 1:
        key, value = key.repeat_interleave(repeated, 1), value.repeat_interleave(repeated, 1)
    return aten._scaled_dot_product_flash_attention.default(query, key, value, 0.0, is_causal, scale=scale)[0]


def _is_fused(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> bool:
    """Whether the fused operator takes tensors, and nobody asked for what attention is made of.

    Tensors that stand for divided ones always go to it, since they have rules for it alone.
    """
    inputs = query, key, value
    if any(each.dim() != _RANK or not each.is_floating_point() or not each.numel() for each in inputs):
        return False
    heads = query.shape[1] % key.shape[1] == 0 if enable_gqa else query.shape[1] == key.shape[1]
    same = query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3] and query.dtype == key.dtype
    if not (heads and same and key.shape == value.shape and key.dtype == value.dtype) or forward_ad._current_level >= 0:
        return False
    return is_traceable_wrapper_subclass(query) or _is_wanted()


def _is_wanted() -> bool:
    """Whether `torch.nn.attention.sdpa_kernel` leaves any fused operator."""
    own = torch._C
    kinds = (own._get_flash_sdp_enabled, own._get_mem_efficient_sdp_enabled, own._get_cudnn_sdp_enabled)
    return own._get_overrideable_sdp_enabled() or any(kind() for kind in kinds)
