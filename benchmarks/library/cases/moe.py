"""Mixtures of experts: routing of tokens, and the products of their experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.utils.common_types import RouterActFnType


def routed(
    tokens: int, hidden: int, experts: int, k: int, layout: int, act: RouterActFnType, **options: Any
) -> Callable[[Make], dict[str, Any]]:
    """Arguments of `router_topk`."""

    def arguments(make: Make) -> dict[str, Any]:
        small = lambda rng, shape: rng.uniform(-0.1, 0.1, shape)  # noqa: E731
        zeros = lambda rng, shape: rng.uniform(0.0, 1.0, shape) * 0  # noqa: E731
        return {
            "x": make((hidden, tokens) if layout == 0 else (tokens, hidden)),
            "w": make((hidden, experts), fill=small),
            "w_bias": make((1, experts), fill=small),
            "router_logits": make((tokens, experts), fill=zeros),
            "expert_affinities": make((tokens, experts), fill=zeros),
            "expert_index": make((tokens, k), nl.uint32, fill=zeros),
            "act_fn": act,
            "k": k,
            "x_hbm_layout": layout,
            "x_sb_layout": 0,
            **options,
        }

    return arguments


def router(
    name: str,
    tokens: int,
    hidden: int,
    experts: int,
    k: int,
    layout: int,
    act: RouterActFnType,
    lnc: int = 1,
    **more: Any,
) -> Case:
    """A case of `router_topk`."""
    return Case(
        kernel="router_topk",
        name=f"{name}, {tokens} x {hidden}, {k} of {experts} experts",
        arguments=routed(tokens, hidden, experts, k, layout, act, **more),
        flops=2 * tokens * hidden * experts,
        hbm_bytes=2 * (tokens * hidden + hidden * experts + 2 * tokens * experts + 2 * tokens * k),
        lnc=lnc,
    )


_SOFTMAX, _SIGMOID = RouterActFnType.SOFTMAX, RouterActFnType.SIGMOID

CASES = [
    router("prefill", 1024, 3072, 128, 4, 0, _SOFTMAX, router_pre_norm=False),
    router("prefill, (T, H)", 1024, 4096, 128, 8, 1, _SOFTMAX, norm_topk_prob=True, use_indirect_dma_scatter=True),
    router("prefill", 1024, 4096, 128, 8, 0, _SOFTMAX, lnc=2, norm_topk_prob=True, shard_on_tokens=True),
    router("decode", 32, 3072, 128, 4, 0, _SOFTMAX, router_pre_norm=False),
    router("decode, sigmoid", 8, 8192, 128, 8, 1, _SIGMOID, use_indirect_dma_scatter=True),
]
