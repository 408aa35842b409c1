"""``nki.isa``: the instructions."""

from __future__ import annotations

from nki.core.errors import VerificationError as NkiValidationError
from nki.core.register import VirtualRegister
from nki.isa.activation import activate2, activation, activation_reduce, exponential, reciprocal
from nki.isa.batchnorm import bn_aggr, bn_stats
from nki.isa.copy import memset, tensor_copy, tensor_copy_predicated
from nki.isa.dma import dma_copy
from nki.isa.dma_ops import dma_compute, dma_transpose
from nki.isa.elementwise import tensor_scalar, tensor_tensor
from nki.isa.gather import local_gather, nc_n_gather
from nki.isa.matmul import nc_matmul, nc_matmul_mx, nc_transpose
from nki.isa.quantize import quantize_mx
from nki.isa.random import dropout, rand2, rand_get_state, rand_set_state, rng, set_rng_seed
from nki.isa.reduce import tensor_partition_reduce, tensor_reduce, tensor_scalar_cumulative, tensor_scalar_reduce
from nki.isa.register import register_alloc, register_load, register_move, register_store
from nki.isa.scan import scalar_tensor_tensor, tensor_tensor_scan
from nki.isa.search import max8, nc_find_index8, nc_match_replace8, nonzero_with_count, topk
from nki.isa.select import affine_select, iota, range_select, select_reduce, sequence_bounds
from nki.isa.shuffle import nc_stream_shuffle
from nki.isa.sync import core_barrier, sendrecv
from nki.isa.version import get_nc_sub_version, get_nc_version
from nki.spec.engine import dge_mode, dma_engine, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd
from nki.spec.instruction import NkiInstruction

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "nonzero_with_count",
    "oob_mode",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
    "unknown_engine",
    "vector_engine",
]
