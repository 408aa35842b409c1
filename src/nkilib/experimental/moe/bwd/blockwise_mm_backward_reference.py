"""What `blockwise_mm_bwd` computes, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nkilib.core.moe.moe_cte.moe_cte_reference import ACTIVATIONS
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.moe.bwd.moe_bwd_parameters import AffinityOption, ClampLimits, KernelTypeOption, ShardOption


def blockwise_mm_bwd_reference(
    hidden_states: Any,
    expert_affinities_masked: Any,
    gate_up_proj_weight: Any,
    down_proj_weight: Any,
    gate_up_proj_act_checkpoint_T: Any,
    down_proj_act_checkpoint: Any,
    token_position_to_id: Any,
    block_to_expert: Any,
    output_hidden_states_grad: Any,
    block_size: int,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = None,
    is_tensor_update_accumulating: bool = True,
    skip_grad_initialization: bool = False,
    shard_option: ShardOption = ShardOption.SHARD_ON_HIDDEN,
    affinity_option: AffinityOption = AffinityOption.AFFINITY_ON_H,
    kernel_type_option: KernelTypeOption = KernelTypeOption.DROPLESS,
    clamp_limits: ClampLimits | None = None,
    bias: bool = False,
    activation_type: ActFnType = ActFnType.SiLU,
    block_tile_size: int | None = None,
    blocking_params: Any = None,
    hidden_states_grad_out: Any = None,
    expert_affinities_masked_grad_out: Any = None,
    gate_up_proj_weight_grad_out: Any = None,
    down_proj_weight_grad_out: Any = None,
    accumulation_dtype: Any = None,
    skip_gate_proj: bool = False,
) -> tuple[Any, ...]:
    """The gradients in float64; those of biases last, if they are wanted."""
    experts, inner, hidden = down_proj_weight.shape
    rows, ids, limits = (
        len(hidden_states),
        np.reshape(token_position_to_id, (-1, block_size)),
        clamp_limits or ClampLimits(),
    )
    affinities, function = _wide(expert_affinities_masked).reshape(rows, experts), ACTIVATIONS[activation_type]
    d_hidden, d_affinities = np.zeros((rows, hidden)), np.zeros((rows, experts))
    d_gate_up, d_down = np.zeros((experts, hidden, 2, inner)), np.zeros((experts, inner, hidden))
    d_first_bias, d_last_bias = np.zeros((experts, 2, inner)), np.zeros((experts, hidden))
    on_results = affinity_option == AffinityOption.AFFINITY_ON_H
    for number, places in enumerate(ids):
        kept = np.flatnonzero((places >= 0) & (places < rows))
        e, t = int(np.reshape(block_to_expert, -1)[number]), places[kept]
        gate, up = _wide(gate_up_proj_act_checkpoint_T[number])[:, :, kept].transpose(0, 2, 1)
        dy, a = _wide(output_hidden_states_grad)[t], affinities[t, e][:, None]
        middle, arriving = function(gate) * up, dy @ _wide(down_proj_weight[e]).T
        d_affinities[t, e] = (arriving * middle).sum(axis=1)
        if bias and on_results:
            d_affinities[t, e] = (dy * _wide(down_proj_act_checkpoint[number])[kept]).sum(axis=1)
        d_down[e] += (a * middle).T @ dy
        d_gate = a * arriving * up * _slope(function, gate)
        d_gate *= _inside(gate, limits.non_linear_clamp_lower_limit, limits.non_linear_clamp_upper_limit)
        d_up = (
            a
            * arriving
            * function(gate)
            * _inside(up, limits.linear_clamp_lower_limit, limits.linear_clamp_upper_limit)
        )
        both = np.stack([d_gate, d_up])
        d_gate_up[e] += np.einsum("th,kti->hki", _wide(hidden_states)[t], both)
        d_hidden[t] += np.einsum("kti,hki->th", both, _wide(gate_up_proj_weight[e]))
        d_first_bias[e] += both.sum(axis=1)
        d_last_bias[e] += ((a if on_results else 1.0) * dy).sum(axis=0)
    found = (d_hidden, d_affinities.reshape(-1, 1), d_gate_up, d_down, d_first_bias, d_last_bias)
    return found if bias else found[:4]


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.float64)


def _slope(function: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    return (function(x + step) - function(x - step)) / (2 * step)


def _inside(values: Any, least: float | None, most: float | None) -> Any:
    return (values > (-np.inf if least is None else least)) & (values < (np.inf if most is None else most))
