"""The kernels of this library: where each is imported from, and the page of the published documentation it follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished kernel.

    Attributes:
        module: where it is defined, at the published library's path of the source.
        documented: module under which the published documentation has it; empty if that is the same, or there is none.
        page: of the published documentation, in ``nki/library/api``, without ".rst"; empty if there is none.
        backward: name of the kernel of its gradient, in the catalogue; empty if it has none.
    """

    module: str
    documented: str = ""
    page: str = ""
    backward: str = ""


_CONV = "nkilib.experimental.conv"
_ATTENTION = "nkilib.experimental.attention"
_COLLECTIVES = "nkilib.experimental.collectives"
_MISC = "nkilib.experimental.misc"
_MLA = "nkilib.experimental.mla.deepseek"
_PROJECTION = "nkilib.core.output_projection"
_SCAN = "nkilib.experimental.scan"

_FOREACH = "nkilib.experimental.foreach"
_OPTIMIZER = "nkilib.experimental.optimizer"

CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        **{
            f"{name}_kernel": Entry(f"{_FOREACH}.foreach_elementwise", _FOREACH, "foreach-elementwise")
            for name in (
                *("add_scalar", "sub_scalar", "mul_scalar", "div_scalar"),
                *("add_tensor", "sub_tensor", "mul_tensor", "div_tensor"),
                *("addcdiv", "addcmul", "lerp", "sqrt"),
            )
        },
        **{
            f"{name}_norm_kernel": Entry(f"{_FOREACH}.foreach_norm", _FOREACH, "foreach-norm")
            for name in ("l1", "l2", "linf")
        },
        "adam_kernel": Entry(f"{_OPTIMIZER}.fused_adam", _OPTIMIZER, "fused-adam"),
        "adamw_kernel": Entry(f"{_OPTIMIZER}.fused_adam", _OPTIMIZER, "fused-adam"),
        "cross_entropy_backward": Entry(
            "nkilib.experimental.loss.cross_entropy", "nkilib.experimental.loss", "cross-entropy"
        ),
        "cross_entropy_forward": Entry(
            "nkilib.experimental.loss.cross_entropy",
            "nkilib.experimental.loss",
            "cross-entropy",
            "cross_entropy_backward",
        ),
        "find_nonzero_indices": Entry(
            "nkilib.core.subkernels.find_nonzero_indices", "nkilib.core.subkernels", "find-nonzero-indices"
        ),
        "gpsimd_topk": Entry("nkilib.experimental.topk.gpsimd_topk", "nkilib.experimental.topk", "gpsimd-topk"),
        "layer_norm": Entry(
            "nkilib.core.layernorm.layer_norm", "nkilib.core.layernorm", backward="layer_norm_backward"
        ),
        "layer_norm_backward": Entry("nkilib.core.layernorm.layer_norm", "nkilib.core.layernorm"),
        "rms_norm": Entry("nkilib.core.rmsnorm.rms_norm", "nkilib.core.rmsnorm", backward="rms_norm_backward"),
        "rms_norm_backward": Entry("nkilib.core.rmsnorm.rms_norm", "nkilib.core.rmsnorm"),
        "rmsnorm_quant_kernel": Entry(
            "nkilib.core.rmsnorm.rmsnorm_quant", "nkilib.core.rmsnorm_quant.rmsnorm_quant", "rmsnorm-quant"
        ),
        "rotational_topk": Entry("nkilib.core.topk.rotational_topk", "nkilib.core.topk"),
        "softmax": Entry("nkilib.core.softmax.softmax", "nkilib.core.softmax", backward="softmax_backward"),
        "softmax_backward": Entry("nkilib.core.softmax.softmax", "nkilib.core.softmax"),
        "topk": Entry("nkilib.core.topk.rotational_topk", "nkilib.core.topk"),
        "all_gather_hbm_kernel": Entry(f"{_COLLECTIVES}.collectives", _COLLECTIVES, "collectives"),
        "all_reduce_hbm_kernel": Entry(f"{_COLLECTIVES}.collectives", _COLLECTIVES, "collectives"),
        "all_to_all_hbm_kernel": Entry(f"{_COLLECTIVES}.collectives", _COLLECTIVES, "collectives"),
        "allgather_compute_matmul": Entry(f"{_COLLECTIVES}.fgcc", _COLLECTIVES, "fgcc"),
        "allgather_sb2sb": Entry(f"{_COLLECTIVES}.sb2sb_allgather", _COLLECTIVES, "sb2sb-allgather"),
        "allgather_sb2sb_tiled": Entry(f"{_COLLECTIVES}.sb2sb_allgather", _COLLECTIVES, "sb2sb-allgather"),
        "dma_copy_rank_id_kernel": Entry(f"{_COLLECTIVES}.collectives", _COLLECTIVES, "collectives"),
        "fine_grained_allgather": Entry(f"{_COLLECTIVES}.fg_allgather", _COLLECTIVES, "fg-allgather"),
        "gather": Entry(f"{_MISC}.gather", _MISC, "gather"),
        "gdn_cte": Entry("nkilib.experimental.gdn.gdn_cte", "nkilib.experimental.gdn"),
        "linear_scan": Entry(f"{_SCAN}.linear_scan", _SCAN, "linear-scan"),
        "mlp": Entry("nkilib.core.mlp.mlp", "nkilib.core.mlp", "mlp", "mlp_backward"),
        "mlp_backward": Entry("nkilib.core.mlp.mlp_backward", "nkilib.core.mlp"),
        **{
            name: Entry("nkilib.experimental.rng.rng", "nkilib.experimental.rng", "rng")
            for name in ("generate_random", "get_rng_state_gpsimd", "set_rng_state_gpsimd")
        },
        "dropout": Entry("nkilib.experimental.rng.dropout", "nkilib.experimental.rng", backward="dropout"),
        **{
            name: Entry("nkilib.core.quantization.fp8_quantize", "nkilib.core.quantization", "fp8-quantize")
            for name in ("pre_combine_dequant_scales", "row_quantization", "static_quantization")
        },
        "pad": Entry("nkilib.experimental.pad.pad", "nkilib.experimental.pad", "pad"),
        "scatter_add": Entry(f"{_MISC}.scatter_add", _MISC, "scatter-add"),
        "rank_id_kernel": Entry(f"{_COLLECTIVES}.collectives", _COLLECTIVES, "collectives"),
        "reduce_scatter_hbm_kernel": Entry(f"{_COLLECTIVES}.collectives", _COLLECTIVES, "collectives"),
        "RoPE": Entry("nkilib.core.embeddings.rope", "nkilib.core.rope", "rope"),
        "transformer_tkg": Entry(
            "nkilib.experimental.transformer.transformer_tkg", "nkilib.experimental.transformer", "transformer-tkg"
        ),
        "attention_block_tkg": Entry(
            "nkilib.experimental.transformer.attention_block_tkg",
            "nkilib.core.attention_block_tkg.attention_block_tkg",
            "attention-block-tkg",
        ),
        "attention_tkg": Entry("nkilib.core.attention.attention_tkg", "nkilib.core.attention_tkg", "attention-tkg"),
        "conv1d": Entry(f"{_CONV}.conv1d", _CONV, "conv1d"),
        "conv3d": Entry(f"{_CONV}.conv3d", _CONV, "conv3d"),
        "swa_fused_cte": Entry(
            "nkilib.experimental.attention.swa_fused_cte", "nkilib.experimental.attention", "swa-fused-cte"
        ),
        "conv3d_temporal_unroll": Entry(f"{_CONV}.conv3d_temporal_unroll", _CONV, "conv3d-temporal-unroll"),
        "conv3d_transpose": Entry(f"{_CONV}.conv3d_transpose", _CONV, "conv3d-transpose"),
        "attention_bwd": Entry("nkilib.core.attention.attention_bwd"),
        "attention_kv_parallel_segmented_cte": Entry(
            "nkilib.core.attention.attention_kv_parallel_segmented_cte",
            "nkilib.core.attention",
            "attention-kv-parallel-segmented-cte",
        ),
        "attention_segmented_cte": Entry(
            "nkilib.core.attention.attention_segmented_cte", "nkilib.core.attention", "attention-segmented-cte"
        ),
        "ring_attention_spmd_bwd": Entry(f"{_ATTENTION}.ring_attention_bwd", _ATTENTION, "ring-attention-bwd"),
        "ring_attention_spmd_fwd": Entry(f"{_ATTENTION}.ring_attention_fwd", _ATTENTION, "ring-attention-fwd"),
        "ring_attention_unpermute": Entry(
            f"{_ATTENTION}.ring_attention_unpermute", _ATTENTION, "ring-attention-unpermute"
        ),
        "attention_cte": Entry("nkilib.core.attention.attention_cte", page="attention-cte", backward="attention_bwd"),
        "depthwise_conv1d_implicit_gemm": Entry(f"{_CONV}.depthwise_conv1d", _CONV, "depthwise-conv1d"),
        "cumsum": Entry("nkilib.core.cumsum.cumsum", "nkilib.core.cumsum", "cumsum"),
        "output_projection_cte": Entry(
            f"{_PROJECTION}.output_projection_cte.output_projection_cte",
            f"{_PROJECTION}.output_projection_cte",
            "output-projection-cte",
        ),
        "output_projection_tkg": Entry(f"{_PROJECTION}.output_projection_tkg", page="output-projection-tkg"),
        "qkv": Entry("nkilib.core.qkv.qkv", "nkilib.core.qkv", "qkv"),
        "rope_hf": Entry("nkilib.core.embeddings.rope_hf"),
        "selective_scan": Entry(f"{_SCAN}.selective_scan", _SCAN, "selective-scan"),
        "ssd": Entry(f"{_SCAN}.ssd", _SCAN, "ssd"),
        "moe_cte": Entry("nkilib.core.moe.moe_cte.moe_cte", "nkilib.core.moe_cte", "moe-cte", "blockwise_mm_bwd"),
        "moe_tkg": Entry("nkilib.core.moe.moe_tkg.moe_tkg", "nkilib.core.moe_tkg", "moe-tkg"),
        "router_topk": Entry("nkilib.core.router_topk.router_topk", "nkilib.core.router_topk", "router-topk"),
        "rmsnorm_router_topk_tkg": Entry(
            "nkilib.experimental.moe_block.rmsnorm_router_topk_tkg",
            "nkilib.experimental.moe_block",
            "rmsnorm-router-topk-tkg",
        ),
        "dynamic_elementwise_add": Entry(
            "nkilib.experimental.dynamic_shapes.dynamic_elementwise_add",
            "nkilib.experimental.dynamic_shapes",
            "dynamic-elementwise-add",
        ),
        "blockwise_mm_bwd": Entry(
            "nkilib.experimental.moe.bwd.blockwise_mm_backward", "nkilib.experimental.moe.bwd", "blockwise-mm-backward"
        ),
        "matmul_mxfp8": Entry(
            "nkilib.experimental.matmul_mxfp8.matmul_mxfp8_generic_kernel",
            "nkilib.experimental.matmul_mxfp8",
            "matmul-mxfp8-generic-kernel",
        ),
        "quantize_block_mxfp8_kernel": Entry(
            "nkilib.experimental.quantize_mxfp8.quantize_mxfp8",
            "nkilib.experimental.quantize_mxfp8",
            "quantize-mxfp8",
        ),
        "argsort_unstable": Entry(
            "nkilib.experimental.subkernels.argsort_unstable", "nkilib.experimental.subkernels", "argsort-unstable"
        ),
        "permute_routed_tokens": Entry(
            "nkilib.experimental.subkernels.permute_routed_tokens",
            "nkilib.experimental.subkernels",
            "permute-routed-tokens",
        ),
        "topk_reduce": Entry(
            "nkilib.experimental.subkernels.topk_reduce", "nkilib.experimental.subkernels", "topk-reduce"
        ),
        "mla_qkv_cte_kernel": Entry(f"{_MLA}.mla_qkv_cte", _MLA, "mla-qkv-cte"),
        "qkv_mla_mx": Entry("nkilib.experimental.qkv.qkv_cte_mla", "nkilib.experimental.qkv", "qkv-cte-mla"),
        "qkv_mla_mx_deepseek_v4": Entry(
            "nkilib.experimental.qkv.qkv_cte_mla_v4", "nkilib.experimental.qkv", "qkv-cte-mla"
        ),
        "sparse_attention_indexer_mx_bf16score": Entry(
            "nkilib.experimental.sparse_attention_indexer.sparse_attention_indexer_mx_bf16score",
            "nkilib.experimental.sparse_attention_indexer",
            "sparse-attention-indexer-mx-bf16score",
        ),
        "mla_sparse_attention_cte_kernel": Entry(f"{_MLA}.mla_sparse_attention_cte", _MLA, "mla-sparse-attention-cte"),
        "mla_vupmx_oproj_cte_kernel": Entry(f"{_MLA}.mla_vup_oproj_cte", _MLA, "mla-vup-oproj-cte"),
    }
)
"""By the name of the kernel's function."""


def kernel(name: str) -> Any:
    """A kernel by its name in the catalogue."""
    return getattr(import_module(CATALOGUE[name].module), name)


def reference(name: str) -> Any:
    """The same function in NumPy, from the file beside the kernel."""
    return getattr(import_module(f"{CATALOGUE[name].module}_reference"), f"{name}_reference")
