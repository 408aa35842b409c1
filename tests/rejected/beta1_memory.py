"""Errors of tensors and tiles of the first NKI: where they are, how large, and who may write to them."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.beta1 as nki
import nki.beta1.compiler as ncc
import nki.beta1.isa as nisa
import nki.beta1.language as nl
import nki.beta1.typing as nt
from tests.rejected.support import CALL, INTS, WIDE, Topic, X, call, edit

TOPIC = Topic(__file__, jit=nki.jit)
refused = TOPIC.refused

TALL = np.zeros((256, 8), np.float32)


@refused(
    "beta1.num_partition_exceed_arch_limit",
    X,
    at="nl.zeros((256, 8), nl.float32)",
    cure=edit("(256, 8)", "(2, nl.par_dim(128), 8)"),
)
def tile_of_256_partitions(a: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    nl.zeros((256, 8), nl.float32)
    nl.store(out, nl.load(a))
    return out


@refused(
    "beta1.num_partition_exceed_arch_limit",
    TALL,
    at="nl.load(a)",
    cure=edit("nl.load(a)", "nl.load(a[0:128])", "(256, 8)", "(128, 8)"),
)
def load_of_256_rows(a: Any) -> Any:
    out = nl.ndarray((256, 8), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


@refused(
    "beta1.hbm_tensor_with_init_value_not_supported",
    X,
    at="nl.zeros((4, 8), nl.float32, buffer=nl.shared_hbm)",
    cure=edit("nl.zeros(", "nl.ndarray("),
)
def zeros_in_hbm(a: Any) -> Any:
    out = nl.zeros((4, 8), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


@refused(
    "beta1.shared_hbm_must_in_kernel_level",
    X,
    at="nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)",
    cure=edit(
        "for _ in nl.affine_range(1):\n        out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)",
        "out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)\n    for _ in nl.affine_range(1):",
    ),
)
def output_made_in_a_loop(a: Any) -> Any:
    for _ in nl.affine_range(1):
        out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
    return out


@refused("beta1.unsupported_memory", X, at="nl.exp(a)", cure=edit("nl.exp(a)", "nl.exp(nl.load(a))"))
def math_on_an_argument(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(a))
    return out


@refused("beta1.unsupported_memory", X, at="a + 1.0", cure=edit("a + 1.0", "nl.load(a) + 1.0"))
def operator_on_an_argument(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, a + 1.0)
    return out


@refused("beta1.unsupported_memory", X, at="nl.load(tile)", cure=edit("nl.load(tile)", "nl.copy(tile)"))
def load_of_a_tile(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, nl.load(tile))
    return out


@refused(
    "beta1.unsupported_memory",
    X,
    at="nl.store(tile, nl.exp(tile))",
    cure=edit("nl.store(tile, nl.exp(tile))", "tile[...] = nl.exp(tile)"),
)
def store_to_a_tile(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(tile, nl.exp(tile))
    nl.store(out, tile)
    return out


@refused(
    "beta1.unsupported_memory",
    X,
    at="out[...]",
    cure=edit("out[...] = nl.load(a)", "nl.store(out[...], nl.load(a))"),
)
def assignment_to_hbm(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    out[...] = nl.load(a)
    return out


@refused(
    "beta1.unsupported_memory",
    X,
    at="nisa.dma_copy(dst=sums, src=a)",
    cure=edit("nisa.dma_copy(dst=sums, src=a)", "sums[...] = nisa.tensor_copy(nl.load(a))"),
)
def copy_from_hbm_to_psum(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((4, 8), nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=sums, src=a)
    nl.store(out, sums)
    return out


@refused(
    "beta1.failed_to_infer_tile_from_local_tensor",
    X,
    at="nl.add(tiles, 32)",
    cure=edit("nl.add(tiles, 32)", "nl.add(tiles[1], 32)"),
)
def blocks_as_one_tile(a: Any) -> Any:
    out = nl.ndarray((8, 8), a.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((4, nl.par_dim(8), 8), nl.float32)
    for i in range(4):
        tiles[i] = 1.0
    nl.store(out, nl.add(tiles, 32))
    return out


@refused(
    "beta1.store_dst_shape_smaller_than_other_shape",
    X,
    at="column[...]",
    cure=edit("column[...] = tile", "tile[...] = column"),
)
def column_from_a_tile(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile, column = nl.load(a), nl.zeros((4, 1), nl.float32)
    column[...] = tile
    nl.store(out, tile)
    return out


@refused(
    "beta1.store_dst_shape_smaller_than_other_shape",
    X,
    at="nl.store(out[:, 0:4], nl.load(a))",
    cure=edit("nl.load(a)", "nl.load(a[:, 0:4])"),
)
def store_of_too_many_columns(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out[:, 0:4], nl.load(a))
    return out


@refused(
    "beta1.cannot_update_immutable_parameter",
    X,
    INTS,
    at="nl.store(a, nl.exp(tile))",
    cure=edit("return out", "return out, a"),
)
def parameter_that_is_changed(a: Any, b: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile)
    nl.store(a, nl.exp(tile))
    return out


@refused(
    "beta1.mutable_parameter_not_returned",
    X,
    at="nl.store(a, nl.exp(tile))",
    cure=edit("return out", "return out, a"),
)
def mutable_parameter_that_is_kept(a: nt.mutable_tensor) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile)
    nl.store(a, nl.exp(tile))
    return out


@refused(
    "beta1.annotation_shape_mismatch",
    X,
    at=CALL,
    cure=call(WIDE),
)
def shape_of_an_annotation(a: nt.tensor[128, 16]) -> Any:
    out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


@refused(
    "beta1.tensor_output_not_written_to",
    X,
    at="nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)",
    cure=edit("4 // 128", "-(-4 // 128)"),
)
def loop_without_trips(a: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    for _ in nl.affine_range(4 // 128):
        nl.store(out, nl.load(a))
    return out


@refused(
    "beta1.tensor_output_not_written_to",
    X,
    at="def nothing_is_stored(a: Any) -> None:",
    cure=edit("nl.exp(nl.load(a))", "nl.store(a, nl.exp(nl.load(a)))"),
)
def nothing_is_stored(a: Any) -> None:
    nl.exp(nl.load(a))


@refused(
    "beta1.argument",
    X,
    at='nl.ndarray((4, 8), nl.float32, buffer="sbuf")',
    cure=edit('"sbuf"', "nl.sbuf"),
)
def memory_by_its_name(a: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((4, 8), nl.float32, buffer="sbuf")
    tile[...] = nl.load(a)
    nl.store(out, tile)
    return out


@refused("beta1.argument", X, at="nl.zeros((4, 8 / 2), nl.float32)", cure=edit("8 / 2", "8"))
def shape_of_floats(a: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    tile = nl.zeros((4, 8 / 2), nl.float32)
    nl.store(out, tile)
    return out


@refused(
    "beta1.allocation",
    X,
    at="tiles[0]",
    cure=edit("(2, 1)", "(2,)"),
)
def tiles_of_another_rank(a: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    tiles = nl.ndarray((2, nl.par_dim(4), 8), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2, 1)))
    tiles[0] = nl.load(a)
    nl.store(out, tiles[0])
    return out


@refused(
    "tensor.capacity",
    X,
    only_calls=True,
    at="nl.zeros((128, 8192), nl.float32, buffer=nl.psum)",
    cure=edit("8192", "512"),
)
def psum_tile_of_too_many_columns(a: Any) -> Any:
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    nl.zeros((128, 8192), nl.float32, buffer=nl.psum)
    nl.store(out, nl.load(a))
    return out
