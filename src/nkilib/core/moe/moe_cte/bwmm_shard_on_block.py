"""`moe_cte` with blocks of its own for each core, under the name and with the result that older callers know."""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nkilib.core.moe.moe_cte import variants
from nkilib.core.moe.moe_cte.layer import layer_of
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
    layer = layer_of(locals())
    return variants.shard_on_block(
        layer, block_sharding_strategy, n_block_per_iter, paired=is_tensor_update_accumulating
    )
