"""`moe_cte` with blocks of its own for each core, under the name and with the result that older callers know."""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nkilib.core.moe.moe_cte import variants
from nkilib.core.moe.moe_cte.layer import make_layer
from nkilib.core.moe.moe_cte.moe_cte_utils import BlockShardStrategy, SkipMode
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode

__all__ = ["BlockShardStrategy", "SkipMode", "bwmm_shard_on_block"]


@nki.jit
def bwmm_shard_on_block(
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
    down_activations: nl.NkiTensor | None = None,
    activation_function: ActFnType = ActFnType.SiLU,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    n_block_per_iter: int = 1,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    block_sharding_strategy: BlockShardStrategy = BlockShardStrategy.PING_PONG,
) -> Any:
    """The sum of the experts' results of each token; arguments are those of `moe_cte`.

    Returns:
        (rows of hidden_states, H); where tokens may be in several blocks (rows, 2, H), with the sum in place 0 and
        zeros in place 1.
    """
    layer = make_layer(
        gate_up_proj_scale,
        down_proj_scale,
        hidden=hidden_states,
        affinities=expert_affinities_masked,
        gate_up=gate_up_proj_weight,
        down=down_proj_weight,
        ids=token_position_to_id,
        experts=block_to_expert,
        block=block_size,
        gate_up_bias=gate_and_up_proj_bias,
        down_bias=down_proj_bias,
        saved_down=down_activations,
        activation=activation_function,
        skip=skip_dma or SkipMode(),
        dtype=compute_dtype,
        accumulating=is_tensor_update_accumulating,
        scaling=expert_affinities_scaling_mode,
        gate_clamp=(gate_clamp_lower_limit, gate_clamp_upper_limit),
        up_clamp=(up_clamp_lower_limit, up_clamp_upper_limit),
    )
    return variants.shard_on_block(
        layer, block_sharding_strategy, n_block_per_iter, paired=is_tensor_update_accumulating
    )
