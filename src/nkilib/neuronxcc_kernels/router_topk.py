"""``_private_kernels.router_topk`` and ``_pre_prod_kernels.topk.topk``: a router, and largest elements."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.router_topk.router_topk import XHBMLayout_H_T__0
from nkilib.core.router_topk.router_topk import router_topk as _router_topk
from nkilib.core.topk.rotational_topk import topk as _topk
from nkilib.core.utils.common_types import RouterActFnType
from nkilib.neuronxcc_kernels.outputs import give
from nkilib.streaming import result

__all__ = ["router_topk_isa_kernel", "topk"]


def router_topk_isa_kernel(
    x: Any,
    w: Any,
    k: int,
    router_logits: Any,
    expert_affinities: Any,
    expert_index: Any,
    act_fn: RouterActFnType,
    shard_on_hidden: bool = False,
) -> None:
    """Logits of all experts, the k best of each token, and the affinities to all of them.

    Args:
        x: (H, T).
        w: (H, E).
        k: experts of a token, at most 8.
        router_logits, expert_affinities: (T, E), written.
        expert_index: (T, k) int32 or uint32, written.
        act_fn: SIGMOID or SOFTMAX, of all logits.
        shard_on_hidden: a choice of the published kernel; here cores share the tokens, which is told.

    Raises:
        KernelLimit: what `router_topk` refuses.
    """
    limits.without_effect(
        "router_topk_isa_kernel", "as cores share the tokens", shard_on_hidden=shard_on_hidden or None
    )
    limits.dtype("expert_index", expert_index, (nl.int32, nl.uint32))
    index = result((x.shape[1], k), nl.uint32)
    layouts = (XHBMLayout_H_T__0, 0)
    _router_topk(x, w, None, router_logits, expert_affinities, index, act_fn, k, *layouts, shard_on_tokens=True)
    give(index, expert_index, "expert_index")


def topk(tensor: Any, k: int) -> Any:
    """The k largest elements along the last dimension, and where they are; the largest comes first.

    Args:
        tensor: (..., V).
        k: how many.

    Returns:
        Values in the dtype of `tensor` and indices in uint32, (..., k) each.

    Raises:
        KernelLimit: what `nkilib.core.topk.topk` refuses.
    """
    return _topk(tensor, k)
