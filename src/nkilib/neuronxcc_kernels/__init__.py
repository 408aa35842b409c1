"""What models of serving libraries import from below ``neuronxcc.nki``: kernels of this library under their old names.

`MODULES` says which module here stands for which one there. Functions have the old signatures: outputs are parameters
that are written, or tensors that are returned; `kernel_name` chooses among kernels. What cannot be served is refused.
"""

from __future__ import annotations

_ATTENTION = f"{__name__}.attention"
_CUMSUM = f"{__name__}.cumsum"
_ENUMERATIONS = f"{__name__}.enumerations"

MODULES = {
    "_pre_prod_kernels": _ENUMERATIONS,
    "_pre_prod_kernels.attention_token_gen": f"{__name__}.attention_token_gen",
    "_pre_prod_kernels.attn_fwd": f"{__name__}.attn_fwd",
    "_pre_prod_kernels.mlp_tkg.mlp_tkg_isa": f"{__name__}.mlp_tkg",
    "_pre_prod_kernels.moe_token_gen": f"{__name__}.moe_token_gen",
    "_pre_prod_kernels.output_proj": f"{__name__}.output_proj",
    "_pre_prod_kernels.qkv": f"{__name__}.qkv",
    "_pre_prod_kernels.qkv_tkg_impl": f"{__name__}.qkv_tkg",
    "_private_kernels": _ENUMERATIONS,
    "_private_kernels.attention": _ATTENTION,
    "_private_kernels.blockwise_mm": f"{__name__}.blockwise_mm",
    "_private_kernels.cumsum": _CUMSUM,
    "_private_kernels.mlp": f"{__name__}.mlp",
    "_private_kernels.prefix_caching_attention": f"{__name__}.prefix_caching_attention",
    "_private_kernels.qkv": f"{__name__}.qkv",
    "_private_kernels.rmsnorm": f"{__name__}.rmsnorm",
    "kernels.allocated_fused_linear": f"{__name__}.allocated_fused_linear",
    "kernels.attention": _ATTENTION,
    "kernels.cumsum": _CUMSUM,
    "kernels.vision": f"{__name__}.vision",
}
