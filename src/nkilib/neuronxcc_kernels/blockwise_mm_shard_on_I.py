# ruff: noqa: N999 - the published name
"""``_pre_prod_kernels.blockwise_mm_shard_on_I`` and ``blockwise_matmul``: mixtures of experts that return results."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.moe.moe_cte import bwmm_shard_on_block as _on_block
from nkilib.core.moe.moe_cte import bwmm_shard_on_I as _on_i
from nkilib.core.moe.moe_cte.moe_cte_utils import BlockShardStrategy, SkipMode
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode
from nkilib.neuronxcc_kernels.not_served import NOT_SERVED as NOT_SERVED
from nkilib.neuronxcc_kernels.outputs import meet
from nkilib.streaming import result, share

__all__ = [
    "blockwise_mm_baseline_shard_intermediate",
    "blockwise_mm_baseline_shard_intermediate_hybrid",
    "bwmm_shard_on_block",
]

blockwise_mm_baseline_shard_intermediate = _on_i.blockwise_mm_baseline_shard_intermediate.func
blockwise_mm_baseline_shard_intermediate_hybrid = _on_i.blockwise_mm_baseline_shard_intermediate_hybrid.func


def bwmm_shard_on_block(
    hidden_states: Any,
    expert_affinities_masked: Any,
    gate_up_proj_weight: Any,
    down_proj_weight: Any,
    block_size: int,
    token_position_to_id: Any,
    block_to_expert: Any,
    conditions: Any = None,
    gate_and_up_proj_bias: Any = None,
    down_proj_bias: Any = None,
    gate_up_proj_scale: Any = None,
    down_proj_scale: Any = None,
    activation_function: ActFnType = ActFnType.SiLU,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    block_sharding_strategy: BlockShardStrategy = BlockShardStrategy.HI_LO,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
) -> Any:
    """The layer, of which each of two cores computes some blocks.

    Args:
        conditions: which blocks have tokens; all are computed here, with the same result, which is told.

    Others are those of `nkilib.core.moe.moe_cte.bwmm_shard_on_block`.

    Returns:
        (T + 1, H); with `is_tensor_update_accumulating` (2, T + 1, H), whose first part is the result.

    Raises:
        KernelLimit: what that kernel refuses.
    """
    given = dict(locals())
    limits.without_effect("bwmm_shard_on_block", "as all blocks are computed", conditions=given.pop("conditions"))
    made = _on_block.bwmm_shard_on_block(**given)
    if not is_tensor_update_accumulating:
        return made
    rows, parts, hidden = made.shape
    out = result((parts, rows, hidden), made.dtype)
    meet(made)
    for part in share(range(parts)):
        nisa.dma_copy(dst=out[part], src=made[:, part])
    meet(out)
    return out
