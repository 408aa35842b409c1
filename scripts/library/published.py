"""The published pages of kernels, by name, and which of them this library has no kernel for yet."""

from __future__ import annotations

from nkilib.catalogue import CATALOGUE

_NAMES = """
argsort-unstable attention-block-tkg attention-cte attention-kv-parallel-segmented-cte attention-mxfp8-tkg
attention-segmented-cte attention-tkg batch-shard blockwise-mm-backward blockwise-mm-backward-mxfp8
blockwise-mm-forward-mxfp8 build-all-to-all-v-metadata build-all2all-dispatch-metadata
bwmm-shard-on-block-v2 collectives conv1d conv3d conv3d-temporal-unroll conv3d-transpose cross-entropy
cumsum depthwise-conv1d dynamic-elementwise-add fg-allgather fgcc find-nonzero-indices foreach-elementwise
foreach-norm fp8-quantize fused-adam gather gpsimd-topk linear-scan matmul-mxfp8-generic-backward-kernel
matmul-mxfp8-generic-kernel mla-qkv-cte mla-sparse-attention-cte mla-vup-oproj-cte mlp mlp-bwd-mxfp8-kernel
mlp-fwd-mxfp8-kernel moe-cte moe-tkg ms-deformable-attention ms-deformable-attention-bwd
mx-moe-block-tkg-wrapper output-projection-cte output-projection-tkg pad permute-a2av permute-routed-tokens
qkv qkv-cte-mla quantize-mxfp8 ring-attention-bwd ring-attention-fwd ring-attention-unpermute
rmsnorm-mx-prefill rmsnorm-quant rmsnorm-router-topk-a2av rmsnorm-router-topk-tkg rng rope router-topk
sb2sb-allgather scatter-add selective-scan sparse-attention-indexer-mx-bf16score ssd swa-fused-cte
topk-reduce transformer-tkg unpermute-a2av
"""

PAGES = tuple(_NAMES.split())
"""Of release 2.32, in nki/library/api, without the index."""

LATER = 98
"""How many there are at 2.33; which ones came is not known here."""


def without_kernel() -> list[str]:
    """Pages that no kernel of the catalogue follows."""
    had = {entry.page for entry in CATALOGUE.values()}
    return [page for page in PAGES if page not in had]
