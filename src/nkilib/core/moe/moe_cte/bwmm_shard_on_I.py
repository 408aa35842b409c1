# ruff: noqa: N999 - the published name
"""`moe_cte` with blocks that the cores share, under the names that older callers know.

Arguments are those of `moe_cte`; results are its results.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nkilib.core.moe.moe_cte import variants
from nkilib.core.moe.moe_cte.layer import layer_of
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode

__all__ = [
    "SkipMode",
    "blockwise_mm_baseline_shard_intermediate",
    "blockwise_mm_baseline_shard_intermediate_hybrid",
    "blockwise_mm_shard_intermediate_dropping",
]


@nki.jit
def blockwise_mm_baseline_shard_intermediate(
    hidden_states: nl.NkiTensor,
    expert_affinities_masked: nl.NkiTensor,
    gate_up_proj_weight: nl.NkiTensor,
    down_proj_weight: nl.NkiTensor,
    block_size: int,
    token_position_to_id: nl.NkiTensor,
    block_to_expert: nl.NkiTensor,
    gate_and_up_proj_bias: nl.NkiTensor | None = None,
    down_proj_bias: nl.NkiTensor | None = None,
    gate_up_proj_scale: nl.NkiTensor | None = None,
    down_proj_scale: nl.NkiTensor | None = None,
    activation_function: ActFnType = ActFnType.SiLU,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.PRE_SCALE,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    checkpoint_activation: bool = False,
    expert_affinity_multiply_on_I: bool = False,
) -> Any:
    """`moe_cte` with shard_on_i."""
    layer = layer_of(locals())
    return variants.shard_on_i(layer, checkpoint_activation)


@nki.jit
def blockwise_mm_baseline_shard_intermediate_hybrid(
    conditions: nl.NkiTensor,
    hidden_states: nl.NkiTensor,
    expert_affinities_masked: nl.NkiTensor,
    gate_up_proj_weight: nl.NkiTensor,
    down_proj_weight: nl.NkiTensor,
    block_size: int,
    token_position_to_id: nl.NkiTensor,
    block_to_expert: nl.NkiTensor,
    num_static_block: int | None = None,
    gate_and_up_proj_bias: nl.NkiTensor | None = None,
    down_proj_bias: nl.NkiTensor | None = None,
    gate_up_proj_scale: nl.NkiTensor | None = None,
    down_proj_scale: nl.NkiTensor | None = None,
    gate_up_activations_T: nl.NkiTensor | None = None,
    down_activations: nl.NkiTensor | None = None,
    activation_function: ActFnType = ActFnType.SiLU,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
) -> Any:
    """`moe_cte` with shard_on_i_hybrid."""
    layer = layer_of(locals())
    return variants.shard_on_i_hybrid(layer, conditions, num_static_block)


@nki.jit
def blockwise_mm_shard_intermediate_dropping(
    hidden_states: nl.NkiTensor,
    expert_affinities_masked: nl.NkiTensor,
    gate_up_proj_weight: nl.NkiTensor,
    down_proj_weight: nl.NkiTensor,
    block_size: int,
    token_position_to_id: nl.NkiTensor,
    block_to_expert: nl.NkiTensor,
    gate_and_up_proj_bias: nl.NkiTensor | None = None,
    down_proj_bias: nl.NkiTensor | None = None,
    gate_up_proj_scale: nl.NkiTensor | None = None,
    down_proj_scale: nl.NkiTensor | None = None,
    activation_function: ActFnType = ActFnType.SiLU,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.PRE_SCALE,
    expert_affinity_multiply_on_I: bool = False,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
) -> Any:
    """`moe_cte` with shard_on_i_dropping."""
    layer = layer_of(locals())
    return variants.shard_on_i_dropping(layer)
