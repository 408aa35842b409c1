# ruff: noqa: N999 - the published name
"""``_pre_prod_kernels.blockwise_mm_shard_on_I`` and ``blockwise_matmul``: mixtures of experts that return results."""

from __future__ import annotations

from nkilib.core.moe.moe_cte import bwmm_shard_on_block as _on_block
from nkilib.core.moe.moe_cte import bwmm_shard_on_I as _on_i
from nkilib.neuronxcc_kernels.not_served import NOT_SERVED as NOT_SERVED

__all__ = [
    "blockwise_mm_baseline_shard_intermediate",
    "blockwise_mm_baseline_shard_intermediate_hybrid",
    "bwmm_shard_on_block",
]

blockwise_mm_baseline_shard_intermediate = _on_i.blockwise_mm_baseline_shard_intermediate.func
blockwise_mm_baseline_shard_intermediate_hybrid = _on_i.blockwise_mm_baseline_shard_intermediate_hybrid.func
bwmm_shard_on_block = _on_block.bwmm_shard_on_block.func
