"""What models of serving libraries import from below ``neuronxcc.nki``: kernels of this library under their old names.

`MODULES` says which module here stands for which one there. Functions have the old signatures: outputs are parameters
that are written, or tensors that are returned; `kernel_name` chooses among kernels. What cannot be served is refused.
"""

from __future__ import annotations

_HERE = {
    "_pre_prod_kernels": "enumerations",
    "_pre_prod_kernels.attention_token_gen": "attention_token_gen",
    "_pre_prod_kernels.attn_fwd": "attn_fwd",
    "_pre_prod_kernels.blockwise_matmul": "blockwise_mm_shard_on_I",
    "_pre_prod_kernels.blockwise_matmul_while": "not_served",
    "_pre_prod_kernels.blockwise_mm": "blockwise_mm",
    "_pre_prod_kernels.blockwise_mm_bwd": "blockwise_mm",
    "_pre_prod_kernels.blockwise_mm_shard_on_I": "blockwise_mm_shard_on_I",
    "_pre_prod_kernels.bwmm_mxfp4": "not_served",
    "_pre_prod_kernels.collectives": "not_served",
    "_pre_prod_kernels.common_types": "enumerations",
    "_pre_prod_kernels.expert_mlps": "not_served",
    "_pre_prod_kernels.max.cascaded_max": "not_served",
    "_pre_prod_kernels.mlp_tkg.expert_mlp_tkg_isa": "not_served",
    "_pre_prod_kernels.mlp_tkg.mlp_tkg_isa": "mlp_tkg",
    "_pre_prod_kernels.moe_token_gen": "moe_token_gen",
    "_pre_prod_kernels.output_proj": "output_proj",
    "_pre_prod_kernels.qkv": "qkv",
    "_pre_prod_kernels.qkv_tkg_impl": "qkv_tkg",
    "_pre_prod_kernels.ring_attention": "not_served",
    "_pre_prod_kernels.topk.topk": "router_topk",
    "_pre_prod_kernels.topk.topk_core": "not_served",
    "_pre_prod_kernels.util.kernel_helpers": "helpers",
    "_private_kernels": "enumerations",
    "_private_kernels.RoPE": "rope",
    "_private_kernels.attention": "attention",
    "_private_kernels.attention_cte": "not_served",
    "_private_kernels.blockwise_mm": "blockwise_mm",
    "_private_kernels.blockwise_mm_bwd": "blockwise_mm",
    "_private_kernels.collectives": "not_served",
    "_private_kernels.cumsum": "cumsum",
    "_private_kernels.expert_mlps": "not_served",
    "_private_kernels.llama3_transformer": "not_served",
    "_private_kernels.mlp": "mlp",
    "_private_kernels.prefix_caching_attention": "prefix_caching_attention",
    "_private_kernels.qkv": "qkv",
    "_private_kernels.rmsnorm": "rmsnorm",
    "_private_kernels.router_topk": "router_topk",
    "_private_kernels.topk.topk": "router_topk",
    "kernels": "attention",
    "kernels.allocated_fused_linear": "allocated_fused_linear",
    "kernels.attention": "attention",
    "kernels.cumsum": "cumsum",
    "kernels.vision": "vision",
}

MODULES = {name: f"{__name__}.{own}" for name, own in _HERE.items()}
