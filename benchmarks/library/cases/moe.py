"""Mixtures of experts: routing of tokens, and the products of their experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.moe_cte import MoECTEImplementation, MoECTESpec
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode, RouterActFnType


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


@dataclass(frozen=True)
class Experts:
    """Sizes of a mixture of experts whose tokens lie in blocks."""

    tokens: int
    hidden: int
    inner: int
    experts: int
    k: int
    block: int

    @property
    def blocks(self) -> int:
        """As many as tokens can need."""
        return -(-(self.tokens * self.k - (self.experts - 1)) // self.block) + self.experts - 1

    def places(self, rng: Any, shape: Any) -> Any:
        """Different tokens in each block, the last places of every other one being padding."""
        found = np.full((self.blocks, self.block), self.tokens)
        for number in range(self.blocks):
            count = min(self.tokens, self.block - 5 * (number % 2))
            found[number, :count] = rng.permutation(self.tokens)[:count]
        return found.reshape(-1)

    def arguments(self, spec: MoECTESpec, **options: Any) -> Callable[[Make], dict[str, Any]]:
        """Arguments of `moe_cte`."""
        rows, small = self.tokens + 1, lambda rng, shape: rng.uniform(-0.1, 0.1, shape)

        def arguments(make: Make) -> dict[str, Any]:
            return {
                "hidden_states": make((rows, self.hidden)),
                "expert_affinities_masked": make((rows * self.experts, 1), fill=lambda rng, shape: rng.random(shape)),
                "gate_up_proj_weight": make((self.experts, self.hidden, 2, self.inner), fill=small),
                "down_proj_weight": make((self.experts, self.inner, self.hidden), fill=small),
                "token_position_to_id": make((self.blocks * self.block,), nl.int32, fill=self.places),
                "block_to_expert": make(
                    (self.blocks, 1), nl.int32, fill=lambda rng, shape: rng.integers(0, self.experts, shape)
                ),
                "block_size": self.block,
                "spec": spec,
                **options,
            }

        return arguments


def blockwise(name: str, sizes: Experts, how: str, lnc: int = 1, **more: Any) -> Case:
    """A case of `moe_cte`."""
    spec = MoECTESpec(MoECTEImplementation[how])
    weights = 3 * sizes.hidden * sizes.inner
    return Case(
        kernel="moe_cte",
        name=f"{name}, {how}, {sizes.blocks} blocks of {sizes.block} x {sizes.hidden} x {sizes.inner}",
        arguments=sizes.arguments(spec, **more),
        flops=2 * sizes.blocks * sizes.block * weights,
        hbm_bytes=2 * (2 * sizes.tokens * sizes.hidden + min(sizes.experts, sizes.blocks) * weights),
        lnc=lnc,
        small=replace(sizes, tokens=300, hidden=256, inner=192, block=128).arguments(spec, **more),
    )


def few(
    name: str, tokens: int, hidden: int, inner: int, experts: int, k: int, *, every: bool, lnc: int = 1, **more: Any
) -> Case:
    """A case of `moe_tkg`: all experts, or those that are chosen, each by another token."""
    small = lambda rng, shape: rng.uniform(-0.1, 0.1, shape)  # noqa: E731
    bias = more.pop("bias", False)

    def arguments(make: Make, hidden: int = hidden, inner: int = inner, experts: int = experts) -> dict[str, Any]:
        choices = lambda rng, shape: np.stack([rng.permutation(experts)[:k] for _ in range(tokens)])  # noqa: E731
        given = {
            "hidden_input": make((tokens, hidden)),
            "expert_gate_up_weights": make((experts, hidden, 2, inner), fill=small),
            "expert_down_weights": make((experts, inner, hidden), fill=small),
            "expert_affinities": make((tokens, experts), nl.float32, fill=lambda rng, shape: rng.random(shape)),
            "expert_index": make((tokens, k), nl.uint32, fill=choices),
            "is_all_expert": every,
            "rank_id": make((1, 1), nl.int32, fill=lambda rng, shape: np.zeros(shape)) if every else None,
            "expert_gate_up_bias": make((experts, 2, inner)) if bias else None,
            "expert_down_bias": make((experts, hidden)) if bias else None,
            "expert_affinities_scaling_mode": ExpertAffinityScaleMode.POST_SCALE,
            **more,
        }
        return given

    computed = experts if every else min(experts, tokens * k)
    weights = 3 * hidden * inner
    return Case(
        kernel="moe_tkg",
        name=f"{name}, {tokens} x {hidden} x {inner}, {'all' if every else k} of {experts} experts",
        arguments=arguments,
        flops=2 * weights * (tokens * experts if every else tokens * k),
        hbm_bytes=2 * (computed * weights + 2 * tokens * hidden),
        lnc=lnc,
        small=lambda make: arguments(make, 256, 192, min(experts, 16)),
    )


def reduced(tokens: int, k: int, hidden: int, rows: int, lnc: int = 1) -> Case:
    """A case of `topk_reduce`."""

    def scattered(rng: Any, shape: Any) -> Any:
        numbers = np.zeros((rows, 1), np.int32)
        numbers[rng.permutation(rows)[: tokens * k], 0] = np.repeat(np.arange(tokens), k) + 1
        values = rng.standard_normal(shape).astype(nl.bfloat16.numpy)
        values[:, hidden:] = numbers.view(nl.bfloat16.numpy)
        return values

    return Case(
        kernel="topk_reduce",
        name=f"{tokens} x {hidden}, {k} of {rows} rows each",
        arguments=lambda make: {"input": make((rows, hidden + 2), fill=scattered), "T": tokens, "K": k},
        flops=0,
        hbm_bytes=2 * tokens * (k + 1) * hidden + 4 * rows,
        lnc=lnc,
    )


def backward(name: str, sizes: Experts, lnc: int = 1) -> Case:
    """A case of `blockwise_mm_bwd`."""
    spec = MoECTESpec(MoECTEImplementation.shard_on_i)
    weights = 3 * sizes.hidden * sizes.inner

    def of(sizes: Experts) -> Callable[[Make], dict[str, Any]]:
        forward = sizes.arguments(spec)

        def arguments(make: Make) -> dict[str, Any]:
            given = {key: value for key, value in forward(make).items() if key != "spec"}
            return {
                **given,
                "gate_up_proj_act_checkpoint_T": make((sizes.blocks, 2, sizes.inner, sizes.block)),
                "down_proj_act_checkpoint": make((sizes.blocks, sizes.block, sizes.hidden)),
                "output_hidden_states_grad": make((sizes.tokens + 1, sizes.hidden)),
            }

        return arguments

    return Case(
        kernel="blockwise_mm_bwd",
        name=f"{name}, {sizes.blocks} blocks of {sizes.block} x {sizes.hidden} x {sizes.inner}",
        arguments=of(sizes),
        flops=4 * sizes.blocks * sizes.block * weights,
        hbm_bytes=2 * (3 * sizes.tokens * sizes.hidden + 2 * min(sizes.experts, sizes.blocks) * weights),
        lnc=lnc,
        small=of(replace(sizes, tokens=300, hidden=256, inner=192, block=128)),
    )


def ordered(count: int, lnc: int = 1) -> Case:
    """A case of `argsort_unstable`."""
    return Case(
        kernel="argsort_unstable",
        name=f"{count} numbers",
        arguments=lambda make: {"data": make((1, count), nl.float32)},
        flops=0,
        hbm_bytes=8 * count,
        lnc=lnc,
        official=False,
        exact=True,
    )


def packed(tokens: int, hidden: int, experts: int, k: int, lnc: int = 1) -> Case:
    """A case of `permute_routed_tokens`."""
    choose = lambda rng, shape: np.argsort(rng.random((tokens, experts)), axis=1)[:, :k]  # noqa: E731
    return Case(
        kernel="permute_routed_tokens",
        name=f"{tokens} x {hidden}, {k} of {experts} experts each",
        arguments=lambda make: {
            "hidden_input": make((tokens, hidden)),
            "expert_index": make((tokens, k), nl.int32, fill=choose),
            "expert_affinities_masked": make((tokens, experts)),
        },
        flops=0,
        hbm_bytes=2 * tokens * (k + 1) * hidden,
        lnc=lnc,
        official=False,
        exact=True,
        meaning=lambda rows: np.ascontiguousarray(rows).view(np.uint16),
    )


_SOFTMAX, _SIGMOID = RouterActFnType.SOFTMAX, RouterActFnType.SIGMOID

CASES = [
    router("prefill", 1024, 3072, 128, 4, 0, _SOFTMAX, router_pre_norm=False),
    router("prefill, (T, H)", 1024, 4096, 128, 8, 1, _SOFTMAX, norm_topk_prob=True, use_indirect_dma_scatter=True),
    router("prefill", 1024, 4096, 128, 8, 0, _SOFTMAX, lnc=2, norm_topk_prob=True, shard_on_tokens=True),
    router("decode", 32, 3072, 128, 4, 0, _SOFTMAX, router_pre_norm=False),
    router("decode, sigmoid", 8, 8192, 128, 8, 1, _SIGMOID, use_indirect_dma_scatter=True),
    blockwise("Mixtral / 8", Experts(1024, 4096, 1792, 8, 2, 512), "shard_on_i"),
    blockwise("gpt-oss / 8", Experts(1024, 3072, 384, 8, 4, 512), "shard_on_block", lnc=2),
    blockwise("gpt-oss", Experts(1024, 3072, 2048, 8, 4, 512), "shard_on_i", lnc=2),
    few("gpt-oss / 8", 32, 3072, 384, 8, 4, every=True, bias=True, lnc=2),
    few("gpt-oss / 8", 4, 3072, 384, 128, 4, every=False, bias=True, activation_fn=ActFnType.Swish, lnc=2),
    few("Qwen3 / 8", 2, 4096, 192, 128, 8, every=False, activation_fn=ActFnType.SiLU),
    few("Mixtral / 8", 64, 4096, 1792, 8, 2, every=True),
    reduced(128, 8, 4096, 1024),
    reduced(128, 4, 2880, 1024, lnc=2),
    backward("Mixtral / 8", Experts(512, 4096, 1792, 4, 2, 512)),
    backward("gpt-oss / 8", Experts(1024, 3072, 384, 8, 4, 512), lnc=2),
    ordered(1024),
    packed(128, 3072, 128, 4),
    packed(512, 4096, 128, 8, lnc=2),
]
