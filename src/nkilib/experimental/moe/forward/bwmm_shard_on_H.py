# ruff: noqa: N999 - the published name
"""`moe_cte` whose cores each compute half of the result's columns, with checkpoints for a backward pass."""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nkilib.core.moe.moe_cte import variants
from nkilib.core.moe.moe_cte.layer import layer_of
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ExpertAffinityScaleMode


@nki.jit
def blockwise_mm_baseline_shard_hidden(
    hidden_states: nl.NkiTensor,
    expert_affinities_masked: nl.NkiTensor,
    gate_up_proj_weight: nl.NkiTensor,
    down_proj_weight: nl.NkiTensor,
    block_size: int,
    token_position_to_id: nl.NkiTensor,
    block_to_expert: nl.NkiTensor,
    gate_up_activations_T: nl.NkiTensor | None = None,
    down_activations: nl.NkiTensor | None = None,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
) -> Any:
    """`moe_cte` with shard_on_i: cores that share a block share the columns of its result.

    Returns:
        (rows of hidden_states, H); tensors that were passed for checkpoints are written.
    """
    layer = layer_of(locals())
    result = variants.shard_on_i(layer)
    return result[0] if isinstance(result, tuple) else result
