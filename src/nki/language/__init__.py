"""``nki.language``: memory, math, loops and grids, written with nki.isa."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nki.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
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
from nki.core.names.removed import missing_name
from nki.core.names.removed_table import LANGUAGE
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, NKIObject
from nki.language.assignment import assign as _assign
from nki.language.broadcasting import broadcast_to, expand_dims
from nki.language.composites import dropout, rms_norm, softmax, where
from nki.language.constants import shared_constant, shared_identity_matrix
from nki.language.grid import num_programs, program_id, program_ndim
from nki.language.grids import NkiBlockGrid, NkiGrid, NkiTileGrid, alloc_blocks, alloc_tiles, blocks, tiles
from nki.language.loops import (
    affine_range,
    dynamic_range,
    fori_loop,
    no_reorder,
    sequential_range,
    static_range,
    while_loop,
)
from nki.language.loops import unrolled_range as _unrolled_range
from nki.language.matrix import matmul, transpose
from nki.language.memory import ds, empty_like, full, ndarray, ones, zeros, zeros_like
from nki.language.operators import (
    abs_max,
    abs_min,
    add,
    average,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    bypass,
    divide,
    equal,
    greater,
    greater_equal,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
)
from nki.language.random import rand, random_seed
from nki.language.reductions import all, max, mean, min, prod, sum, var
from nki.language.regions import is_hbm, is_on_chip, is_psum, is_sbuf
from nki.language.rounding import ceil, floor, fmod, mod, trunc
from nki.language.sizes import fp32, tile_size
from nki.language.transfer import copy, device_print, gather_flattened, load, load_transpose2d, store
from nki.language.trigonometry import cos, sin, tan
from nki.language.unary import (
    abs,
    arctan,
    erf,
    erf_dx,
    exp,
    gelu,
    gelu_apprx_sigmoid,
    gelu_apprx_sigmoid_dx,
    gelu_apprx_tanh,
    gelu_dx,
    invert,
    log,
    logical_not,
    mish,
    negative,
    prelu,
    reciprocal,
    relu,
    rsqrt,
    sigmoid,
    sign,
    silu,
    silu_dx,
    softplus,
    sqrt,
    square,
    tanh,
)
from nki.spec.sink import counts_in_views as _counts_in_views

range = _unrolled_range  # not in __all__: a star import keeps Python's own
sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
hbm = private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm

__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiBlockGrid",
    "NkiGrid",
    "NkiTensor",
    "NkiTileGrid",
    "abs",
    "abs_max",
    "abs_min",
    "add",
    "affine_range",
    "all",
    "alloc_blocks",
    "alloc_tiles",
    "arctan",
    "average",
    "bfloat16",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "blocks",
    "bool_",
    "broadcast_to",
    "bypass",
    "ceil",
    "copy",
    "cos",
    "device_print",
    "divide",
    "dropout",
    "ds",
    "dynamic_range",
    "empty_like",
    "equal",
    "erf",
    "erf_dx",
    "exp",
    "expand_dims",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "floor",
    "fmod",
    "fori_loop",
    "fp32",
    "full",
    "gather_flattened",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "gelu_apprx_tanh",
    "gelu_dx",
    "greater",
    "greater_equal",
    "hbm",
    "int8",
    "int16",
    "int32",
    "invert",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "left_shift",
    "less",
    "less_equal",
    "load",
    "load_transpose2d",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mod",
    "multiply",
    "ndarray",
    "negative",
    "no_reorder",
    "not_equal",
    "num_programs",
    "ones",
    "power",
    "prelu",
    "private_hbm",
    "prod",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "reciprocal",
    "relu",
    "right_shift",
    "rms_norm",
    "rsqrt",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "sigmoid",
    "sign",
    "silu",
    "silu_dx",
    "sin",
    "softmax",
    "softplus",
    "sqrt",
    "square",
    "static_range",
    "store",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "tfloat32",
    "tile_size",
    "tiles",
    "transpose",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "var",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]

NkiTensor.assigner = _assign
NkiTensor.patterns_of_views = _counts_in_views


if TYPE_CHECKING:  # which would not see misspelt names if there were a function for them
    bool = bool_
else:

    def __getattr__(name: str) -> DType:
        if name == "bool":  # not in the documents; kernels write it, and as a name here it would hide Python's
            return bool_
        raise missing_name("nki.language", name, LANGUAGE)
