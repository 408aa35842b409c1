"""Kernels that models of serving libraries import, and that are not served under their old names."""

from __future__ import annotations

__all__: list[str] = []

_BLOCKS = "call nkilib.core.moe.moe_cte.bwmm_shard_on_block, or blockwise_mm_baseline of this module"
_RING = "call nkilib.experimental.attention"

NOT_SERVED = {
    "CollectivesConfig": "call nkilib.experimental.collectives, whose kernels get their groups as arguments",
    "blockwise_mm_baseline_block_parallel": _BLOCKS,
    "blockwise_mm_baseline_block_parallel_allocated": _BLOCKS,
    "blockwise_mm_baseline_shard_n_k1_while_2loops": "call "
    "nkilib.core.moe.moe_cte.bwmm_shard_on_I.blockwise_mm_baseline_shard_intermediate_hybrid",
    "blockwise_mm_bwd_selective_cp": "call blockwise_mm_bwd of this module",
    "blockwise_mm_selective_cp": "call blockwise_mm_baseline of this module",
    "bwmm_fp4_shard_on_block": "dequantise the weights, and call nkilib.core.moe.moe_cte.bwmm_shard_on_block",
    "cascaded_max": "call nkilib.core.topk.topk with k=1",
    "expert_mlps_isa_inline_kernel": "call nkilib.core.moe_tkg.moe_tkg",
    "llama3_nki_attention_block_cte_kernel": "call nkilib.core.qkv.qkv, nkilib.core.attention.attention_cte and "
    "nkilib.core.output_projection.output_projection_cte",
    "matmul_o_proj": "call nkilib.core.output_projection.output_projection_cte",
    "nki_expert_mlp_tkg_isa_kernel": "call nkilib.core.moe_tkg.moe_tkg",
    "ring_attention_bwd": f"{_RING}.ring_attention_bwd",
    "ring_attention_fwd": f"{_RING}.ring_attention_fwd",
    "topk_core": "call nkilib.core.topk.topk",
}
"""Names of functions and classes, and what takes their place."""
