"""``_pre_prod_kernels.moe_token_gen``: a mixture of experts in a decoding step, from hidden states to hidden states.

A norm, a router that chooses experts, the experts, and a shared expert for all tokens where there is one. Affinities
and logits are float32. The router multiplies in `router_mm_dtype`, and experts in the dtype of the hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.mlp.mlp import mlp
from nkilib.core.moe.moe_tkg.moe_tkg import moe_tkg
from nkilib.core.rmsnorm.rms_norm import rms_norm
from nkilib.core.router_topk.router_topk import XHBMLayout_T_H__1, router_topk
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode, RouterActFnType
from nkilib.neuronxcc_kernels.outputs import add_to, cast, meet
from nkilib.streaming import result

__all__ = ["moe_token_gen_all_experts_kernel", "moe_token_gen_kernel", "moe_token_gen_selective_load_kernel"]


@dataclass(frozen=True)
class _Routed:
    """Tokens (T, H), normalised, and what the router says of them.

    Attributes:
        logits, affinities: (T, all experts).
        index: (T, K), experts that were chosen.
    """

    tokens: Any
    logits: Any
    affinities: Any
    index: Any


def moe_token_gen_all_experts_kernel(
    inp: Any,
    gamma: Any,
    router_weights: Any,
    expert_gate_up_weights: Any,
    expert_down_weights: Any,
    rank_id: Any,
    shared_expert_gate_w: Any = None,
    shared_expert_up_w: Any = None,
    shared_expert_down_w: Any = None,
    expert_gate_up_weights_scale: Any = None,
    expert_down_weights_scale: Any = None,
    router_bias: Any = None,
    expert_gate_up_bias: Any = None,
    expert_down_bias: Any = None,
    shared_expert_gate_bias: Any = None,
    shared_expert_up_bias: Any = None,
    shared_expert_down_bias: Any = None,
    eps: float = 1e-6,
    top_k: int = 1,
    router_act_fn: RouterActFnType = RouterActFnType.SIGMOID,
    router_pre_norm: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    hidden_act_fn: ActFnType = ActFnType.SiLU,
    hidden_act_scale_factor: float | None = None,
    hidden_act_bias: Any = None,
    norm_topk_prob: bool = False,
    router_mm_dtype: Any = nl.bfloat16,
    hidden_actual: int | None = None,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    use_router_topk_nki_kernel: bool | None = None,
) -> Any:
    """The mixture, where every expert of this rank computes all tokens.

    Args:
        inp: (B, S, H).
        gamma: (1, H), factors of the norm.
        router_weights: (H, all experts).
        expert_gate_up_weights: (E, H, 2, I), of the experts of this rank.
        expert_down_weights: (E, I, H).
        rank_id: (1, 1): the rank has experts from ``rank_id * E`` on.
        shared_expert_gate_w, shared_expert_up_w: (H, I), or None.
        shared_expert_down_w: (I, H), or None.
        expert_gate_up_weights_scale, expert_down_weights_scale: (E, 2, I) and (E, H), for weights in 8 bits.
        router_bias: (all experts,) or (1, all experts), or None.
        expert_gate_up_bias, expert_down_bias: (E, 2, I) and (E, H), or None.
        eps: added to the mean of the squares.
        top_k: experts of a token.
        router_act_fn: SIGMOID or SOFTMAX.
        router_pre_norm: affinities are computed of all logits, otherwise of the chosen ones.
        expert_affinities_scaling_mode: POST_SCALE.
        hidden_act_fn: of the gates.
        norm_topk_prob: the affinities of the chosen experts are divided by their sum.
        router_mm_dtype: of the operands of the router's product.
        hidden_actual: H, or None for it.
        gate_clamp_upper_limit, gate_clamp_lower_limit, up_clamp_upper_limit, up_clamp_lower_limit: of the experts'
            projections before the activation.
        shared_expert_gate_bias, shared_expert_up_bias, shared_expert_down_bias, hidden_act_scale_factor,
            hidden_act_bias: None.
        use_router_topk_nki_kernel: a choice of the published kernel; there is one router here, which is told.

    Returns:
        (T, H) in the dtype of `inp`, and the router's logits (T, all experts) in float32, of T = B * S tokens.

    Raises:
        KernelLimit: what is not built, and what the router, `moe_tkg` and `mlp` refuse.
    """
    return _mixture(dict(locals()), "moe_token_gen_all_experts_kernel", rank_id)


def moe_token_gen_selective_load_kernel(
    inp: Any,
    gamma: Any,
    router_weights: Any,
    expert_gate_up_weights: Any,
    expert_down_weights: Any,
    shared_expert_gate_w: Any = None,
    shared_expert_up_w: Any = None,
    shared_expert_down_w: Any = None,
    expert_gate_up_weights_scale: Any = None,
    expert_down_weights_scale: Any = None,
    router_bias: Any = None,
    expert_gate_up_bias: Any = None,
    expert_down_bias: Any = None,
    shared_expert_gate_bias: Any = None,
    shared_expert_up_bias: Any = None,
    shared_expert_down_bias: Any = None,
    eps: float = 1e-6,
    top_k: int = 1,
    router_act_fn: RouterActFnType = RouterActFnType.SIGMOID,
    router_pre_norm: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    hidden_act_fn: ActFnType = ActFnType.SiLU,
    hidden_act_scale_factor: float | None = None,
    hidden_act_bias: Any = None,
    norm_topk_prob: bool = False,
    router_mm_dtype: Any = nl.bfloat16,
    hidden_actual: int | None = None,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    use_router_topk_nki_kernel: bool | None = None,
) -> Any:
    """`moe_token_gen_all_experts_kernel`, where each token goes through its chosen experts alone, which are all here.

    NO_SCALE adds up the results of the chosen experts as they are.
    """
    return _mixture(dict(locals()), "moe_token_gen_selective_load_kernel", None)


def moe_token_gen_kernel(
    inp: Any,
    gamma: Any,
    router_weights: Any,
    shared_expert_gate_w: Any,
    shared_expert_up_w: Any,
    shared_expert_down_w: Any,
    expert_gate_up_weights: Any,
    expert_down_weights: Any,
    expert_gate_up_weights_scale: Any = None,
    expert_down_weights_scale: Any = None,
    eps: float = 1e-6,
    top_k: int = 1,
    router_act_fn: RouterActFnType = RouterActFnType.SIGMOID,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    router_mm_dtype: Any = nl.bfloat16,
    hidden_actual: int | None = None,
) -> Any:
    """`moe_token_gen_selective_load_kernel` of fewer options."""
    return _mixture(dict(locals()), "moe_token_gen_kernel", None)


def _mixture(given: dict[str, Any], kernel: str, rank: Any) -> Any:
    """All of it; with a rank every expert computes all tokens."""
    _check(given, kernel, rank is not None)
    routed = _routed(given)
    out = moe_tkg(
        routed.tokens,
        given["expert_gate_up_weights"],
        given["expert_down_weights"],
        routed.affinities,
        routed.index,
        rank is not None,
        rank_id=rank,
        expert_gate_up_bias=given.get("expert_gate_up_bias"),
        expert_down_bias=given.get("expert_down_bias"),
        expert_gate_up_weights_scale=given["expert_gate_up_weights_scale"],
        expert_down_weights_scale=given["expert_down_weights_scale"],
        mask_unselected_experts=rank is not None,
        expert_affinities_scaling_mode=given["expert_affinities_scaling_mode"],
        activation_fn=given.get("hidden_act_fn", ActFnType.SiLU),
        gate_clamp_upper_limit=given.get("gate_clamp_upper_limit"),
        gate_clamp_lower_limit=given.get("gate_clamp_lower_limit"),
        up_clamp_upper_limit=given.get("up_clamp_upper_limit"),
        up_clamp_lower_limit=given.get("up_clamp_lower_limit"),
    )
    gate, up, down = (given[f"shared_expert_{name}_w"] for name in ("gate", "up", "down"))
    if gate is not None:
        added = mlp(routed.tokens, gate, up, down, activation_fn=given.get("hidden_act_fn", ActFnType.SiLU))[0]
        for each in (out, added):
            meet(each)
        add_to(out, added.reshape(tuple(out.shape)))
    return out, routed.logits


_NONE = [f"shared_expert_{name}_bias" for name in ("gate", "up", "down")] + [
    "hidden_act_scale_factor",
    "hidden_act_bias",
]


def _check(given: dict[str, Any], kernel: str, all_experts: bool) -> None:
    """Refuse what is not built here, or what nobody documents."""
    hidden = limits.shape("inp", given["inp"], ("B", "S", "H"))["H"]
    asked = {name: given.get(name) for name in _NONE}
    asked["hidden_actual"] = None if given["hidden_actual"] in (None, hidden) else given["hidden_actual"]
    limits.not_built(asked, kernel)
    limits.without_effect(
        kernel, "as there is one router", use_router_topk_nki_kernel=given.get("use_router_topk_nki_kernel")
    )
    modes = [ExpertAffinityScaleMode.POST_SCALE] + ([] if all_experts else [ExpertAffinityScaleMode.NO_SCALE])
    limits.one_of("expert_affinities_scaling_mode", given["expert_affinities_scaling_mode"], modes)
    shared = {name: given[f"shared_expert_{name}_w"] is not None for name in ("gate", "up", "down")}
    limits.need(
        len(set(shared.values())) == 1,
        "shared_expert_gate_w, shared_expert_up_w, shared_expert_down_w",
        ", ".join("given" if there else "None" for there in shared.values()),
        "a shared expert has all three",
        "pass all or none",
    )


def _routed(given: dict[str, Any]) -> _Routed:
    inp, kind = given["inp"], given["router_mm_dtype"]
    hidden, experts = inp.shape[2], given["router_weights"].shape[1]
    count = inp.shape[0] * inp.shape[1]
    flat = inp.reshape((count, hidden))
    limits.shape("router_weights", given["router_weights"], (hidden, "all experts"))
    wider = kind.itemsize > inp.dtype.itemsize
    normal = rms_norm(cast(flat, kind) if wider else flat, given["gamma"], given["eps"])
    meet(normal)
    logits, affinities = (result((count, experts), nl.float32) for _ in range(2))
    index = result((count, given["top_k"]), nl.uint32)
    bias = given.get("router_bias")
    router_topk(
        cast(normal, kind),
        cast(given["router_weights"], kind),
        None if bias is None else cast(bias, kind),
        logits,
        affinities,
        index,
        given["router_act_fn"],
        given["top_k"],
        XHBMLayout_T_H__1,
        0,
        router_pre_norm=given.get("router_pre_norm", True),
        norm_topk_prob=given.get("norm_topk_prob", False),
        shard_on_tokens=True,
    )
    for each in (logits, affinities, index):
        meet(each)
    return _Routed(cast(normal, inp.dtype), logits, affinities, index)
