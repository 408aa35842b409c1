"""``neuronxcc.nki.language``: the language of the first NKI."""

from __future__ import annotations

from nki.beta1.language.composites import dropout, rand, random_seed, rms_norm, softmax, where
from nki.beta1.language.constants import (
    bfp16,
    finfo,
    fp32,
    gemm_grid,
    gemm_stationary_grid,
    shared_constant,
    shared_identity_matrix,
    static_cast,
)
from nki.beta1.language.loops import affine_range, sequential_range, static_range
from nki.beta1.language.math import BINARY, UNARY
from nki.beta1.language.memory import empty_like, full, ndarray, ones, par_dim, zeros, zeros_like
from nki.beta1.language.programs import all_reduce, loop_reduce, num_programs, program_id, program_ndim
from nki.beta1.language.reductions import REDUCTIONS, matmul, transpose
from nki.beta1.language.shapes import atomic_rmw, broadcast_to, device_print, ds, expand_dims, gather_flattened
from nki.beta1.language.transfer import copy, load, load_transpose2d, store
from nki.beta1.tensors.index import MGrid, arange
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import assign, update
from nki.beta1.tracing.grid import nc, spmd_dim
from nki.core.dtypes import (
    bfloat16,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki.core.dtypes import bool_ as bool_
from nki.language import private_hbm, psum, sbuf, shared_hbm, tile_size

hbm = private_hbm
mgrid = MGrid()
globals().update({**UNARY, **BINARY, **REDUCTIONS})
Tensor.functions |= {"assign": assign, "update": update}

__all__ = [
    "affine_range",
    "all_reduce",
    "arange",
    "atomic_rmw",
    "bfloat16",
    "bfp16",
    "bool_",
    "broadcast_to",
    "copy",
    "device_print",
    "dropout",
    "ds",
    "empty_like",
    "expand_dims",
    "finfo",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "float32",
    "fp32",
    "full",
    "gather_flattened",
    "gemm_grid",
    "gemm_stationary_grid",
    "hbm",
    "int8",
    "int16",
    "int32",
    "load",
    "load_transpose2d",
    "loop_reduce",
    "matmul",
    "mgrid",
    "nc",
    "ndarray",
    "num_programs",
    "ones",
    "par_dim",
    "private_hbm",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "rms_norm",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "softmax",
    "spmd_dim",
    "static_cast",
    "static_range",
    "store",
    "tfloat32",
    "tile_size",
    "transpose",
    "uint8",
    "uint16",
    "uint32",
    "where",
    "zeros",
    "zeros_like",
]
__all__ += list(UNARY)
__all__ += list(BINARY)
__all__ += list(REDUCTIONS)
