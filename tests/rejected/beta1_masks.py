"""Errors of masks and of control flow of the first NKI."""

from __future__ import annotations

from typing import Any

import nki.beta1 as nki
import nki.beta1.language as nl
from tests.rejected.support import WIDE, Topic, X, edit

TOPIC = Topic(__file__, jit=nki.jit)
refused = TOPIC.refused


@refused(
    "beta1.unsupported_expression_in_mask",
    X,
    at="nl.store(out, tile, mask=tile > 2)",
    cure=edit("tile, mask=tile > 2", "nl.where(tile > 2, tile, 0.0)"),
)
def mask_of_values(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile, mask=tile > 2)
    return out


@refused(
    "beta1.unsupported_expression_in_mask",
    X,
    at="(i_f < 2) | (i_f > 5)",
    cure=edit("(i_f < 2) | (i_f > 5)", "i_f < 2"),
)
def mask_of_two_ranges(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:4, 0:8]
    nl.store(out[i_p, i_f], nl.load(a), mask=(i_f < 2) | (i_f > 5))
    return out


@refused(
    "beta1.unsupported_expression_in_index",
    X,
    at="i_f % 4",
    cure=edit("i_f % 4", "i_f"),
)
def mask_of_a_remainder(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:4, 0:8]
    nl.store(out[i_p, i_f], nl.load(a), mask=i_f % 4 < 2)
    return out


@refused(
    "beta1.mask_shape",
    X,
    at="nl.store(out, nl.load(a), mask=nl.arange(6)[None, :] < 4)",
    cure=edit("nl.arange(6)", "nl.arange(8)"),
)
def mask_of_another_size(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a), mask=nl.arange(6)[None, :] < 4)
    return out


@refused(
    "beta1.unsupported_expression_in_mask",
    WIDE,
    at="nl.matmul(tile, tile, transpose_x=True, mask=i_p >= i_f)",
    cure=edit(", mask=i_p >= i_f", ""),
)
def triangle_of_a_product(a: Any) -> Any:
    out = nl.ndarray((16, 16), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    i_p, i_f = nl.mgrid[0:16, 0:16]
    nl.store(out, nl.copy(nl.matmul(tile, tile, transpose_x=True, mask=i_p >= i_f)))
    return out


@refused(
    "beta1.control_flow_condition_depending_on_arange",
    X,
    at="i_f > 4",
    cure=edit("if i_f > 4:\n        nl.store(out[i_p, i_f], tile)", "nl.store(out[i_p, i_f], tile, mask=i_f > 4)"),
)
def condition_on_positions(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:4, 0:8]
    tile = nl.load(a[i_p, i_f])
    if i_f > 4:
        nl.store(out[i_p, i_f], tile)
    return out


@refused(
    "beta1.control_flow_condition_depending_on_arange",
    X,
    at="range(i_f)",
    cure=edit("range(i_f)", "range(8)"),
)
def loop_over_positions(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(8)[None, :]
    for _ in range(i_f):
        nl.store(out, nl.load(a))
    return out


@refused(
    "beta1.ambiguous_tensor_truth_value",
    X,
    at="not (tile > 0)",
    cure=edit("not (tile > 0)", "nl.logical_not(tile > 0)"),
)
def not_of_a_tile(a: Any) -> Any:
    out = nl.ndarray((4, 8), nl.uint8, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, not (tile > 0))
    return out


@refused(
    "beta1.ambiguous_tensor_truth_value",
    X,
    X,
    at="if b:",
    cure=edit("if b:", "if b is not None:"),
)
def optional_argument(a: Any, b: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    if b:
        tile[...] = tile + nl.load(b)
    nl.store(out, tile)
    return out


@refused(
    "beta1.dynamic_control_flow_not_supported",
    X,
    at="if flag:",
    cure=edit("if flag:\n        nl.store(out, tile)", "nl.store(out, nl.where(flag.broadcast_to((4, 8)), tile, 0.0))"),
)
def condition_on_a_value(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    flag = nl.load(a[0:1, 0:1])
    if flag:
        nl.store(out, tile)
    return out


@refused(
    "beta1.dynamic_control_flow_not_supported",
    X,
    at="total[0, 0] < 10",
    cure=edit("while total[0, 0] < 10:", "for _ in range(4):"),
)
def while_of_a_value(a: Any) -> Any:
    out = nl.ndarray((1, 1), a.dtype, buffer=nl.shared_hbm)
    total = nl.load(a[0:1, 0:1])
    while total[0, 0] < 10:
        total += 1.0
    nl.store(out, total)
    return out


@refused(
    "beta1.unexpected_output_dependencies",
    X,
    at="nl.exp(tile)",
    cure=edit("affine_range", "sequential_range"),
)
def trips_that_depend(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    for _ in nl.affine_range(4):
        tile[...] = nl.exp(tile)
    nl.store(out, tile)
    return out


@refused(
    "beta1.unexpected_output_dependencies",
    X,
    at="nl.store(out, tile)",
    cure=edit("affine_range", "sequential_range"),
)
def trips_that_store_to_one_place(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    for _ in nl.affine_range(2):
        nl.store(out, tile)
    return out


@refused("beta1.argument", X, at="nl.affine_range(8 / 2)", cure=edit("8 / 2", "8 // 2"))
def trips_of_a_float(a: Any) -> Any:
    out = nl.ndarray((4, 8), a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(8 / 2):
        nl.store(out[i], nl.load(a[i].reshape((1, 8))).reshape((1, 8)))
    return out
