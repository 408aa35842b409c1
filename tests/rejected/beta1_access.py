"""Errors of indices of the first NKI: what is outside, what is no index, and what varies at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.beta1 as nki
import nki.beta1.isa as nisa
import nki.beta1.language as nl
from tests.rejected.support import WIDE, Topic, X, edit

TOPIC = Topic(__file__, jit=nki.jit)
refused = TOPIC.refused

ROWS = np.arange(8, dtype=np.int32).reshape(8, 1)


@refused("beta1.1d_arange_not_supported", WIDE, at="tile[i, 0]", cure=edit("nl.arange(64)", "nl.arange(64)[:, None]"))
def arange_of_one_axis(a: Any) -> Any:
    out = nl.ndarray((64, 1), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    i = nl.arange(64)
    nl.store(out, nl.exp(tile[i, 0]))
    return out


@refused(
    "beta1.1d_arange_not_supported",
    X,
    at="nisa.iota(nl.arange(8), dtype=nl.int32)",
    cure=edit("nl.arange(8)", "nl.arange(8)[None, :]"),
)
def iota_of_one_axis(a: Any) -> Any:
    out = nl.ndarray((1, 8), nl.int32, buffer=nl.shared_hbm)
    nl.store(out, nisa.iota(nl.arange(8), dtype=nl.int32))
    return out


@refused(
    "beta1.tensor_access_out_of_bound",
    WIDE,
    at="nl.load(a[i_p, i * 6 + i_f])",
    cure=edit("+ i_f])", "+ i_f], mask=i * 6 + i_f < 16)", "tile)", "tile, mask=i * 6 + i_f < 16)"),
)
def last_piece_without_mask(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:6]
    for i in nl.affine_range(3):
        tile = nl.load(a[i_p, i * 6 + i_f])
        nl.store(out[i_p, i * 6 + i_f], tile)
    return out


@refused(
    "beta1.tensor_access_out_of_bound",
    WIDE,
    at="nl.load(a[64:192, 0:16])",
    cure=edit("64:192", "0:128"),
)
def slice_behind_the_end(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a[64:192, 0:16]))
    return out


@refused(
    "beta1.tensor_access_out_of_bound",
    WIDE,
    at="nl.store(out, tile[0:64][40:72])",
    cure=edit("[40:72]", "[32:64]"),
)
def part_of_a_part(a: Any) -> Any:
    out = nl.ndarray((32, 16), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile[0:64][40:72])
    return out


@refused(
    "beta1.tensor_access_out_of_bound",
    WIDE,
    at="nl.store(out[i_p, i_f], part[i_p, i_f], mask=i_p < 33)",
    cure=edit("i_p < 33", "i_p < 32"),
)
def mask_that_cuts_too_little(a: Any) -> Any:
    out = nl.ndarray((64, 16), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:64, 0:16]
    part = nl.load(a)[0:64][32:96]
    nl.store(out[i_p, i_f], part[i_p, i_f], mask=i_p < 33)
    return out


@refused("beta1.tensor_access_out_of_bound", X, at="a[-5]", cure=edit("a[-5]", "a[3]"))
def negative_index(a: Any) -> Any:
    out = nl.ndarray((1, 8), a.dtype, buffer=nl.shared_hbm)
    row = a[-5]
    nl.store(out, nl.load(row.reshape((1, 8))))
    return out


@refused("beta1.empty_slice", X, at="tile[:, 4:4]", cure=edit("4:4", "4:5"))
def slice_without_elements(a: Any) -> Any:
    out = nl.ndarray((4, 1), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile[:, 4:4])
    return out


@refused("beta1.too_many_indices", X, at="a[0, 0:4, 0:8]", cure=edit("0, 0:4, 0:8", "0:4, 0:8"))
def block_index_of_a_matrix(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a[0, 0:4, 0:8]))
    return out


@refused("beta1.unsupported_index", X, at="tile[:, 0 : a.shape[1] / 2]", cure=edit(" / 2", " // 2"))
def half_by_division(a: Any) -> Any:
    out = nl.ndarray((4, 4), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile[:, 0 : a.shape[1] / 2])
    return out


@refused("beta1.unsupported_index", X, at="tile[:, [0, 1]]", cure=edit("[0, 1]]", "0:2]"))
def list_of_columns(a: Any) -> Any:
    out = nl.ndarray((4, 2), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile[:, [0, 1]])
    return out


@refused(
    "beta1.unsupported_mixing_basic_advanced_tensor_indexing",
    X,
    at="tile[i, :]",
    cure=edit("[i, :]", "[i, nl.arange(8)[None, :]]"),
)
def slice_beside_an_index_tensor(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    i = nl.arange(4)[:, None]
    nl.store(out, nl.exp(tile[i, :]))
    return out


@refused("beta1.unsupported_expression_in_index", X, at="i_f // 3", cure=edit("i_f // 3", "i_f"))
def uneven_division(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:4, 0:8]
    nl.store(out, nl.load(a[i_p, i_f // 3]))
    return out


@refused("beta1.unsupported_expression_in_index", X, at="i_p * i_f", cure=edit("i_p * i_f", "i_f"))
def product_of_positions(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(4)[:, None], nl.arange(8)[None, :]
    nl.store(out, nl.load(a[i_p, i_p * i_f]))
    return out


@refused("beta1.index_subscript", X, at="nl.arange(4)[None, :, 2]", cure=edit("[None, :, 2]", "[None, :]"))
def arange_with_too_many_axes(a: Any) -> Any:
    out = nl.ndarray((4, 4), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a[nl.arange(4)[:, None], nl.arange(4)[None, :, 2]]))
    return out


@refused("beta1.cannot_assign_to_index", X, at="i_f[0, 5]", cure=edit("i_f[0, 5] = 1", "pass"))
def index_that_is_assigned(a: Any) -> Any:
    out = nl.ndarray((1, 8), nl.int32, buffer=nl.shared_hbm)
    _, i_f = nl.mgrid[0:1, 0:8]
    i_f[0, 5] = 1
    nl.store(out, nisa.iota(i_f, dtype=nl.int32))
    return out


@refused("beta1.arange", X, at="nl.arange(a.shape[1] / 2)", cure=edit("/ 2", "// 2"))
def arange_of_a_float(a: Any) -> Any:
    out = nl.ndarray((4, 4), a.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(a.shape[1] / 2)[None, :]
    nl.store(out, nl.load(a[nl.arange(4)[:, None], i_f]))
    return out


@refused("beta1.unsupported_mgrid", X, at="nl.mgrid[4, 8]", cure=edit("[4, 8]", "[0:4, 0:8]"))
def grid_of_ints(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[4, 8]
    nl.store(out, nl.load(a[i_p, i_f]))
    return out


@refused(
    "beta1.failed_to_broadcast",
    X,
    at="a[nl.arange(4)[None, :], nl.arange(8)[None, :]]",
    cure=edit("nl.arange(4)[None, :]", "nl.arange(4)[:, None]"),
)
def index_tensors_of_one_axis(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a[nl.arange(4)[None, :], nl.arange(8)[None, :]]))
    return out


@refused(
    "beta1.indirect_indices_free_dim",
    WIDE,
    ROWS,
    at="nl.load(a[rows[i_p, i_f], i_f])",
    cure=edit("rows[i_p, i_f]", "rows[nl.arange(8)[:, None], 0]", "], i_f]", "], nl.arange(4)[None, :]]"),
)
def rows_of_a_grid(a: Any, b: Any) -> Any:
    out = nl.ndarray((8, 4), a.dtype, buffer=nl.shared_hbm)
    rows = nl.load(b)
    i_p, i_f = nl.mgrid[0:8, 0:4]
    nl.store(out, nl.load(a[rows[i_p, i_f], i_f]))
    return out


@refused(
    "beta1.indirect_indices_are_not_supported_with_nki_api",
    WIDE,
    ROWS,
    at="nl.load_transpose2d(a[rows[i_p, 0], i_f])",
    cure=edit("nl.load_transpose2d(", "nl.transpose(nl.load(", "0], i_f])", "0], i_f]))"),
)
def transposing_load_of_rows(a: Any, b: Any) -> Any:
    out = nl.ndarray((16, 8), a.dtype, buffer=nl.shared_hbm)
    rows = nl.load(b)
    i_p, i_f = nl.arange(8)[:, None], nl.arange(16)[None, :]
    tile = nl.load_transpose2d(a[rows[i_p, 0], i_f])
    nl.store(out, tile)
    return out


@refused(
    "beta1.copy_dynamic_indirect_indices_not_natively_supported",
    X,
    ROWS,
    at="nl.exp(tile[i_p, at[0, 0]])",
    cure=edit("tile[i_p, at[0, 0]]", "nisa.tensor_copy_dynamic_src(tile[i_p, at[0, 0]])"),
)
def column_of_run_time(a: Any, b: Any) -> Any:
    out = nl.ndarray((4, 1), a.dtype, buffer=nl.shared_hbm)
    tile, at = nl.load(a), nl.load(b[0:1, 0:1])
    i_p = nl.arange(4)[:, None]
    nl.store(out, nl.exp(tile[i_p, at[0, 0]]))
    return out


@refused(
    "beta1.copy_dynamic_indirect_indices_not_natively_supported",
    WIDE,
    ROWS,
    at="nisa.tensor_copy_dynamic_src(tile[rows[i_p, 0], i_f])",
    cure=edit("nisa.tensor_copy_dynamic_src(tile[", "nl.load(a["),
)
def rows_of_a_tile(a: Any, b: Any) -> Any:
    out = nl.ndarray((8, 16), a.dtype, buffer=nl.shared_hbm)
    tile, rows = nl.load(a), nl.load(b)
    i_p, i_f = nl.arange(8)[:, None], nl.arange(16)[None, :]
    nl.store(out, nisa.tensor_copy_dynamic_src(tile[rows[i_p, 0], i_f]))
    return out


@refused("beta1.tensor_iteration", X, at="list(tile)", cure=edit("list(tile)", "[tile[i] for i in range(4)]"))
def loop_over_a_tile(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    for i, row in enumerate(list(tile)):
        nl.store(out[i], row)
    return out
