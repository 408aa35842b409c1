"""What `moe_tkg` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.core.moe.moe_cte.moe_cte_reference import ACTIVATIONS
from nkilib.core.utils.common_types import (
    ActFnType,
    DtypeMode,
    ExpertAffinityScaleMode,
    MoEAllToAllVStrategy,
    MoEBlockIOLayout,
)


def moe_tkg_reference(
    hidden_input: Any,
    expert_gate_up_weights: Any,
    expert_down_weights: Any,
    expert_affinities: Any,
    expert_index: Any,
    is_all_expert: bool,
    rank_id: Any = None,
    expert_gate_up_bias: Any = None,
    expert_down_bias: Any = None,
    expert_gate_up_weights_scale: Any = None,
    expert_down_weights_scale: Any = None,
    hidden_input_scale: Any = None,
    expert_gate_up_input_scale: Any = None,
    expert_down_input_scale: Any = None,
    mask_unselected_experts: bool = False,
    expert_affinities_eager: Any = None,
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
    input_dequant_scale: Any = None,
    all_to_all_v_strategy: MoEAllToAllVStrategy = MoEAllToAllVStrategy.DISABLED,
    output_layout: MoEBlockIOLayout = MoEBlockIOLayout.B_S_H,
    output: Any = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
) -> Any:
    """The result for hidden states (T, H), in float64."""
    experts = len(expert_down_weights)
    index, first = np.asarray(expert_index, np.int64), 0
    chosen = np.zeros((len(hidden_input), np.shape(expert_affinities)[1]))
    np.put_along_axis(chosen, index, 1.0, axis=1)
    counts = np.ones((len(hidden_input), experts)) if is_all_expert else chosen
    if expert_affinities_scaling_mode == ExpertAffinityScaleMode.POST_SCALE:
        affinities = _wide(expert_affinities)
        if is_all_expert:
            first = int(np.reshape(rank_id, -1)[0]) * experts
            affinities = (affinities * chosen if mask_unselected_experts else affinities)[:, first : first + experts]
        elif expert_affinities_eager is not None:
            affinities = np.zeros_like(chosen)
            np.put_along_axis(affinities, index, _wide(expert_affinities_eager), axis=1)
        counts = counts * affinities
    limits = (gate_clamp_lower_limit, gate_clamp_upper_limit), (up_clamp_lower_limit, up_clamp_upper_limit)
    total = np.zeros(np.shape(hidden_input))
    for e in range(experts):
        sums = np.einsum("th,hki->kti", _wide(hidden_input), _wide(expert_gate_up_weights[e]))
        sums = sums * _of(expert_gate_up_weights_scale, e, 1.0) + _of(expert_gate_up_bias, e, 0.0)
        both = zip(sums, limits, strict=True)
        gate, up = (each if limit == (None, None) else np.clip(each, *limit) for each, limit in both)
        result = (ACTIVATIONS[activation_fn](gate) * up) @ _wide(expert_down_weights[e])
        result = result * _of(expert_down_weights_scale, e, 1.0) + _of(expert_down_bias, e, 0.0)
        total += counts[:, e : e + 1] * result
    return total


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.float64)


def _of(arrays: Any, expert: int, otherwise: float) -> Any:
    """Numbers of an expert that go with each column, or one number."""
    return otherwise if arrays is None else _wide(arrays[expert])[..., None, :]
