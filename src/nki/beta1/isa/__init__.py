"""``neuronxcc.nki.isa``: the instructions of the first NKI."""

from __future__ import annotations

from nki.beta1.isa import constants
from nki.beta1.isa.activations import activation, activation_reduce
from nki.beta1.isa.elementwise import (
    dropout,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_scalar,
    tensor_tensor,
)
from nki.beta1.isa.enumerations import (
    dge_mode,
    dma_engine,
    engine,
    fp32,
    gpsimd_engine,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from nki.beta1.isa.movement import _tiled_offloaded_fma as _tiled_offloaded_fma
from nki.beta1.isa.movement import _tiled_offloaded_memcpy as _tiled_offloaded_memcpy
from nki.beta1.isa.movement import (
    builtin_custom_op,
    dma_copy,
    dma_transpose,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
)
from nki.beta1.isa.products import nc_matmul, nc_stream_shuffle, nc_transpose
from nki.beta1.isa.reductions import (
    bn_aggr,
    bn_stats,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar_reduce,
    tensor_tensor_scan,
)
from nki.beta1.isa.search import (
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    sequence_bounds,
)
from nki.beta1.isa.select import (
    affine_select,
    iota,
    memset,
    range_select,
    select_reduce,
    tensor_copy_predicated,
)
from nki.isa import get_nc_version

__all__ = [
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "builtin_custom_op",
    "constants",
    "dge_mode",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "fp32",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce",
    "sequence_bounds",
    "tensor_copy",
    "tensor_copy_dynamic_dst",
    "tensor_copy_dynamic_src",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "unknown_engine",
    "vector_engine",
]
