"""Errors of operands of the first NKI's instructions and functions."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.beta1 as nki
import nki.beta1.isa as nisa
import nki.beta1.language as nl
from tests.rejected.support import Topic, X, edit

TOPIC = Topic(__file__, jit=nki.jit)
refused = TOPIC.refused


@nki.jit
def inner(tile: Any) -> Any:
    """A kernel for kernels to call."""
    return nl.exp(tile)


@refused(
    "beta1.num_partition_mismatch",
    X,
    at="nisa.tensor_tensor(tile, row, op=nl.add)",
    cure=edit("row, op", "row.broadcast_to((4, 8)), op"),
)
def row_in_a_tensor_tensor(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile, row = nl.load(a), nl.load(a[0:1])
    nl.store(out, nisa.tensor_tensor(tile, row, op=nl.add))
    return out


@refused("beta1.failed_to_broadcast", X, at="tile + part", cure=edit("tile + part", "tile[:, 0:4] + part"))
def columns_that_do_not_fit(a: Any) -> Any:
    out = nl.ndarray((4, 4), a.dtype, buffer=nl.shared_hbm)
    tile, part = nl.load(a), nl.load(a[:, 0:4])
    nl.store(out, tile + part)
    return out


@refused(
    "beta1.failed_to_broadcast",
    X,
    at="tile.broadcast_to((4, 16))",
    cure=edit("tile.broadcast_to", "tile[:, 0:1].broadcast_to"),
)
def broadcast_of_eight_columns(a: Any) -> Any:
    out = nl.ndarray((4, 16), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile.broadcast_to((4, 16)))
    return out


@refused(
    "beta1.activation_bias_invalid_type",
    X,
    at="nisa.activation(op=nl.exp, data=tile, bias=bias)",
    cure=edit("dtype=nl.int8", "dtype=nl.float32"),
)
def bias_of_bytes(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    bias = nisa.memset((4, 1), 1, dtype=nl.int8)
    nl.store(out, nisa.activation(op=nl.exp, data=tile, bias=bias))
    return out


@refused(
    "beta1.activation_scale_invalid_type",
    X,
    at="nisa.activation(op=nl.exp, data=tile, scale=factor)",
    cure=edit("dtype=nl.float16", "dtype=nl.float32"),
)
def scale_of_half_precision(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    factor = nisa.memset((4, 1), 1.2, dtype=nl.float16)
    nl.store(out, nisa.activation(op=nl.exp, data=tile, scale=factor))
    return out


@refused(
    "beta1.activation_scale_scalar_or_vector",
    X,
    at="nisa.activation(op=nl.exp, data=tile, scale=tile)",
    cure=edit("scale=tile", "scale=tile[:, 0:1]"),
)
def scale_of_all_elements(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, nisa.activation(op=nl.exp, data=tile, scale=tile))
    return out


@refused(
    "beta1.exceed_max_supported_dimension",
    X,
    at="nl.transpose(tile)",
    cure=edit("nl.transpose(tile)", "nl.transpose(tile.reshape((4, 8)))"),
)
def transpose_of_three_dimensions(a: Any) -> Any:
    out = nl.ndarray((8, 4), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a.reshape((4, 4, 2)))
    nl.store(out, nl.transpose(tile))
    return out


@refused(
    "beta1.size_of_dimension_exceed_arch_limit",
    X,
    at="nl.transpose(tile)",
    cure=edit("(128, 512)", "(128, 128)", "(512, 128)", "(128, 128)"),
)
def transpose_of_512_columns(a: Any) -> Any:
    out = nl.ndarray((512, 128), a.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((128, 512), nl.float32)
    turned = nl.transpose(tile)
    nl.store(out, turned)
    return out


@refused(
    "beta1.size_of_dimension_exceed_arch_limit",
    X,
    at="nisa.nc_transpose(tile)",
    cure=edit("(128, 512)", "(128, 128)", "(512, 128)", "(128, 128)"),
)
def instruction_for_512_columns(a: Any) -> Any:
    out = nl.ndarray((512, 128), a.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((128, 512), nl.float32)
    turned = nisa.nc_transpose(tile)
    nl.store(out, turned)
    return out


@refused(
    "beta1.argument",
    X,
    at="nisa.tensor_tensor(tile, tile, op=np.matmul)",
    cure=edit("np.matmul", "np.add"),
)
def function_that_is_no_operator(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, nisa.tensor_tensor(tile, tile, op=np.matmul))
    return out


@refused(
    "beta1.argument",
    X,
    at="nl.exp(tile, out=tile)",
    cure=edit("nl.exp(tile, out=tile)", "nl.exp(tile)"),
)
def keyword_that_nobody_knows(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, nl.exp(tile, out=tile))
    return out


@refused("beta1.argument", X, at="nl.exp(2.0)", cure=edit("nl.exp(2.0)", "nl.exp(nl.load(a))"))
def function_of_a_number(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(2.0))
    return out


@refused(
    "beta1.argument",
    X,
    at="nl.load(np.zeros((4, 8), np.float32))",
    cure=edit("nl.load(np.zeros((4, 8), np.float32))", "nl.load(a)"),
)
def array_of_the_host(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(np.zeros((4, 8), np.float32)))
    return out


@refused("beta1.argument", X, at="tile[:, 0:4]", cure=edit("[1, 2, 3, 4]", "1.0"))
def list_that_is_assigned(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    tile[:, 0:4] = [1, 2, 3, 4]
    nl.store(out, tile)
    return out


@refused(
    "beta1.argument",
    X,
    at="nisa.tensor_scalar(tile, np.multiply, tile)",
    cure=edit("np.multiply, tile", "np.multiply, tile[:, 0:1]"),
)
def tile_for_a_scalar(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, nisa.tensor_scalar(tile, np.multiply, tile))
    return out


@refused(
    "beta1.argument",
    X,
    at='nisa.tensor_copy(tile, engine="vector")',
    cure=edit('"vector"', "nisa.vector_engine"),
)
def engine_by_its_name(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, nisa.tensor_copy(tile, engine="vector"))
    return out


@refused(
    "beta1.argument",
    X,
    at="nl.atomic_rmw(out, tile, op=np.maximum)",
    cure=edit("np.maximum", "np.add", "nl.atomic_rmw(", "nl.store(out, 0.0)\n    nl.atomic_rmw("),
)
def atomic_maximum(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.atomic_rmw(out, tile, op=np.maximum)
    return out


@refused(
    "beta1.nested_kernel_with_spmd_grid",
    X,
    at="inner[2, 2](tile)",
    cure=edit("inner[2, 2](tile)", "inner(tile)"),
)
def kernel_with_a_grid_in_a_kernel(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, inner[2, 2](tile))
    return out


@refused("beta1.grid", X, at="inner[4 / 2]", cure=edit("inner[4 / 2](tile)", "inner(tile)"))
def grid_of_a_float(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, inner[4 / 2](tile))
    return out
