"""The MLP of a mixture of experts for few tokens: all experts of a rank, or those that each token chose.

Math, for a token x with affinities a, summed over experts e::

    y = sum of a[e] * (activation(x @ gate[e]) * (x @ up[e])) @ down[e]

Scales of 8-bit weights, biases and clamps come between the products and what follows; clamps after biases.

Layouts: tokens (T, H) in HBM, or (128, T, H / 128) in SBUF, where partition p holds the numbers from ``p * H / 128``
on; of each half of H if two cores compute all experts or a single token. Weights (E, H, 2, I) and (E, I, H). bfloat16,
float16 or float32, weights also in 8 bits with a scale for each of their columns.

Limits: T <= 128 for chosen experts and for results in SBUF; MX weights (trn3) and static scales are not built.

Engines: DMA streams weights, which bounds it up to about 200 tokens; Tensor multiplies them with the tokens, first with
the intermediate dimension on partitions, then with tokens there. Two cores have half of the experts, tokens or
intermediate dimension each. Where more experts are chosen than there are, all are computed, with affinities of 0.
Source: moe-tkg.rst of the published library.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.moe.moe_cte.layer import Layer
from nkilib.core.moe.moe_tkg.checks import check, check_all, check_chosen
from nkilib.core.moe.moe_tkg.experts import compute_all, compute_chosen, local_affinities
from nkilib.core.moe.moe_tkg.tokens import Tokens
from nkilib.core.utils.common_types import (
    ActFnType,
    DtypeMode,
    ExpertAffinityScaleMode,
    MoEAllToAllVStrategy,
    MoEBlockIOLayout,
)
from nkilib.streaming import sbuf


@nki.jit
def moe_tkg(
    hidden_input: nl.NkiTensor,
    expert_gate_up_weights: nl.NkiTensor,
    expert_down_weights: nl.NkiTensor,
    expert_affinities: nl.NkiTensor,
    expert_index: nl.NkiTensor,
    is_all_expert: bool,
    rank_id: nl.NkiTensor | None = None,
    expert_gate_up_bias: nl.NkiTensor | None = None,
    expert_down_bias: nl.NkiTensor | None = None,
    expert_gate_up_weights_scale: nl.NkiTensor | None = None,
    expert_down_weights_scale: nl.NkiTensor | None = None,
    hidden_input_scale: nl.NkiTensor | None = None,
    expert_gate_up_input_scale: nl.NkiTensor | None = None,
    expert_down_input_scale: nl.NkiTensor | None = None,
    mask_unselected_experts: bool = False,
    expert_affinities_eager: nl.NkiTensor | None = None,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.NO_SCALE,
    activation_fn: ActFnType = ActFnType.SiLU,
    output_dtype: Any = None,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    output_in_sbuf: bool = False,
    is_all_expert_dynamic: bool = False,
    block_size: int | None = None,
    input_dequant_scale: nl.NkiTensor | None = None,
    all_to_all_v_strategy: MoEAllToAllVStrategy = MoEAllToAllVStrategy.DISABLED,
    output_layout: MoEBlockIOLayout = MoEBlockIOLayout.B_S_H,
    output: nl.NkiTensor | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
) -> nl.NkiTensor:
    """The sum of experts' results of each token.

    Args:
        hidden_input: (T, H) in HBM, or (128, T, H / 128) in SBUF.
        expert_gate_up_weights: (E, H, 2, I); with all experts those of this rank.
        expert_down_weights: (E, I, H).
        expert_affinities: (T, all experts), in HBM or SBUF.
        expert_index: (T, K), in HBM or SBUF: the experts that each token chose.
        is_all_expert: every token goes through all experts, otherwise through those of `expert_index`.
        rank_id: (1, 1): the rank has experts from ``rank_id * E`` on. Needed for all experts with affinities.
        expert_gate_up_bias: (E, 2, I), or None.
        expert_down_bias: (E, H), or None.
        expert_gate_up_weights_scale: (E, 2, I), for weights in 8 bits.
        expert_down_weights_scale: (E, H), for weights in 8 bits.
        mask_unselected_experts: with all experts, affinities to experts that are not in `expert_index` count as 0.
        expert_affinities_eager: (T, K): affinities to the chosen experts, in place of `expert_affinities`.
        expert_affinities_scaling_mode: NO_SCALE or POST_SCALE.
        activation_fn: SiLU, GELU, GELU_Tanh_Approx, Swish (x * sigmoid(1.702 * x)) or ReLU.
        output_dtype: None for that of `hidden_input`.
        gate_clamp_upper_limit, gate_clamp_lower_limit: of the activation's argument.
        up_clamp_upper_limit, up_clamp_lower_limit: of its factor.
        output_in_sbuf: the result is a tile in the layout of `hidden_input`, which lies in SBUF too.
        output: (T, H) in HBM that the result is written to; None for a new tensor.
        hidden_input_scale, expert_gate_up_input_scale, expert_down_input_scale, is_all_expert_dynamic, block_size,
            input_dequant_scale, all_to_all_v_strategy, output_layout, dtype_mode: not built but for their defaults.

    Returns:
        (T, H) in HBM, or a tile in SBUF.
    """
    limits.not_built(
        {
            "hidden_input_scale": hidden_input_scale,
            "expert_gate_up_input_scale": expert_gate_up_input_scale,
            "expert_down_input_scale": expert_down_input_scale,
            "is_all_expert_dynamic": is_all_expert_dynamic or None,
            "block_size": block_size,
            "input_dequant_scale": input_dequant_scale,
            "all_to_all_v_strategy": _unless(all_to_all_v_strategy, MoEAllToAllVStrategy.DISABLED),
            "output_layout": _unless(output_layout, MoEBlockIOLayout.B_S_H),
            "dtype_mode": _unless(dtype_mode, DtypeMode.NON_OCP),
        },
        "moe_tkg",
    )
    parts = nl.num_programs(0) if is_all_expert or expert_index.shape[0] == 1 else 1
    tokens = Tokens(hidden_input, parts)
    layer = Layer(
        hidden=hidden_input,
        affinities=expert_affinities,
        gate_up=expert_gate_up_weights,
        down=expert_down_weights,
        ids=None,
        experts=expert_index,
        block=tokens.count,
        gate_up_bias=expert_gate_up_bias,
        down_bias=expert_down_bias,
        gate_up_scale=expert_gate_up_weights_scale,
        down_scale=expert_down_weights_scale,
        activation=activation_fn,
        dtype=hidden_input.dtype,
        scaling=expert_affinities_scaling_mode,
        gate_clamp=(gate_clamp_lower_limit, gate_clamp_upper_limit),
        up_clamp=(up_clamp_lower_limit, up_clamp_upper_limit),
    )
    dtype = output_dtype or hidden_input.dtype
    target = sbuf(hidden_input.shape, dtype) if output_in_sbuf else output
    if target is None:
        target = streaming.result((tokens.count, tokens.hidden), dtype)
    check(layer, tokens, target)
    if is_all_expert:
        check_all(layer, rank_id, expert_affinities_eager)
        compute_all(layer, tokens, local_affinities(layer, rank_id, mask_unselected_experts), target)
    else:
        check_chosen(layer, tokens, expert_affinities_eager)
        compute_chosen(layer, tokens, expert_affinities_eager, target)
    return target


def _unless(value: Any, usual: Any) -> Any:
    return None if value == usual else value
