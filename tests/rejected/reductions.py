"""Activation functions, reductions, scans, searches and selections."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import WIDE, Topic, X, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused
LONG = np.ones((128, 640), np.float32)


@refused(
    "activation.function",
    X,
    at="nisa.activation(dst=t, op=nl.add, data=t)",
    cure=edit("nl.add", "nl.exp"),
)
def operator_as_function(a: Any) -> None:
    t = nl.load(a)
    nisa.activation(dst=t, op=nl.add, data=t)


@refused(
    "activation.column-partitions",
    X,
    at="nisa.activation(dst=t[0:2], op=nl.exp, data=t[0:2], bias=t[:, 0:1])",
    cure=edit("t[:, 0:1]", "t[0:2, 0:1]"),
)
def bias_of_other_partitions(a: Any) -> None:
    t = nl.load(a)
    nisa.activation(dst=t[0:2], op=nl.exp, data=t[0:2], bias=t[:, 0:1])


@refused(
    "activation.shapes",
    X,
    at="nisa.activation(dst=t, op=nl.exp, data=t[:, 0:4])",
    cure=edit("dst=t,", "dst=t[:, 4:8],"),
)
def activation_of_half(a: Any) -> None:
    t = nl.load(a)
    nisa.activation(dst=t, op=nl.exp, data=t[:, 0:4])


@refused(
    "activation.reduce-op",
    X,
    at="nisa.activation(t, nl.exp, t, reduce_op=nl.maximum, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)",
    cure=edit("nl.maximum", "nl.add"),
)
def maximum_in_an_activation(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((4, 1), nl.float32)
    nisa.activation(t, nl.exp, t, reduce_op=nl.maximum, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)


@refused(
    "activation.reduce-op-missing",
    X,
    at="nisa.activation(t, nl.exp, t, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)",
    cure=edit("reduce_res=r", "reduce_op=nl.add, reduce_res=r"),
)
def reduction_without_operator(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((4, 1), nl.float32)
    nisa.activation(t, nl.exp, t, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)


@refused(
    "activation_reduce.reduce-res",
    X,
    at="nisa.activation_reduce(t, nl.exp, t, nl.add, r)",
    cure=edit("nl.add, r)", "nl.add, r[0:4, 0:1])"),
)
def sums_into_a_matrix(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((4, 8), nl.float32)
    nisa.activation_reduce(t, nl.exp, t, nl.add, r)


@refused(
    "activation.reduce-cmd",
    X,
    at="nisa.activation(t, nl.exp, t, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.load_reduce)",
    cure=edit("reduce_cmd.load_reduce", "reduce_cmd.reset_reduce"),
)
def load_reduce_on_scalar(a: Any) -> None:
    t = nl.load(a)
    nisa.activation(t, nl.exp, t, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.load_reduce)


@refused(
    "tensor_reduce.axis",
    X,
    at="nisa.tensor_reduce(r, nl.add, t, axis=0)",
    cure=edit("axis=0", "axis=1"),
)
def reduction_over_partitions(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((4, 1), nl.float32)
    nisa.tensor_reduce(r, nl.add, t, axis=0)


@refused(
    "tensor_reduce.shapes",
    X,
    at="nisa.tensor_reduce(r, nl.add, t, axis=1)",
    cure=edit("(4, 8), nl.float32)", "(4, 1), nl.float32)"),
)
def reduction_into_the_same_shape(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((4, 8), nl.float32)
    nisa.tensor_reduce(r, nl.add, t, axis=1)


@refused("language.axis", X, at="nl.sum(t, axis=0)", cure=edit("axis=0", "axis=1"))
def language_sum_over_partitions(a: Any) -> None:
    t = nl.load(a)
    nl.sum(t, axis=0)


@refused(
    "tensor_tensor_scan.both-psum",
    X,
    at="nisa.tensor_tensor_scan(t, p, p, 0.0, nl.multiply, nl.add)",
    cure=edit("(t, p, p,", "(t, t, p,"),
)
def scan_of_psum(a: Any) -> None:
    t = nl.load(a)
    p = nl.zeros((4, 8), nl.float32, buffer=nl.psum)
    nisa.tensor_tensor_scan(t, p, p, 0.0, nl.multiply, nl.add)


@refused(
    "tensor_tensor_scan.operators",
    X,
    at="nisa.tensor_tensor_scan(t, t, t, 0.0, nl.multiply, nl.bitwise_or)",
    cure=edit("nl.bitwise_or", "nl.add"),
)
def scan_of_bits(a: Any) -> None:
    t = nl.load(a)
    nisa.tensor_tensor_scan(t, t, t, 0.0, nl.multiply, nl.bitwise_or)


@refused("bn_stats.free-size", LONG, at="nisa.bn_stats(r, t)", cure=edit("(r, t)", "(r, t[:, 0:512])"))
def statistics_of_a_long_row(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((128, 6), nl.float32)
    nisa.bn_stats(r, t)


@refused("bn_aggr.tuples", X, at="nisa.bn_aggr(r, t)", cure=edit("(r, t)", "(r, t[:, 0:6])"))
def aggregate_of_eight(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((4, 2), nl.float32)
    nisa.bn_aggr(r, t)


@refused("max8.size", X, at="nisa.max8(r, t[:, 0:6])", cure=edit("t[:, 0:6]", "t[:, 0:8]"))
def eight_largest_of_six(a: Any) -> None:
    t = nl.load(a)
    r = nl.ndarray((4, 8), nl.float32)
    nisa.max8(r, t[:, 0:6])


@refused(
    "range_select.on-false-value",
    X,
    at="nisa.range_select(t, t, nl.greater_equal, nl.less, b, b, on_false_value=0.0)",
    cure=edit(", on_false_value=0.0", ""),
)
def zero_outside_the_range(a: Any) -> None:
    t = nl.load(a)
    b = nl.zeros((4, 1), nl.float32)
    nisa.range_select(t, t, nl.greater_equal, nl.less, b, b, on_false_value=0.0)


@refused(
    "range_select.bound1",
    X,
    at="nisa.range_select(t, t, nl.greater_equal, nl.less, b[:, 0:1], b)",
    cure=edit("b[:, 0:1], b)", "b[:, 0:1], b[:, 1:2])"),
)
def bound_with_two_columns(a: Any) -> None:
    t = nl.load(a)
    b = nl.zeros((4, 2), nl.float32)
    nisa.range_select(t, t, nl.greater_equal, nl.less, b[:, 0:1], b)


@refused("iota.pattern-size", X, at="nisa.iota(t, [[1, 4]])", cure=edit("[1, 4]", "[1, 8]"))
def pattern_shorter_than_the_tile(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.int32)
    nisa.iota(t, [[1, 4]])


@refused("operand.kind", X, at="nisa.iota(t, [1, 8])", cure=edit("[1, 8]", "[[1, 8]]"))
def pattern_of_numbers(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.int32)
    nisa.iota(t, [1, 8])


@refused(
    "affine_select.cmp-op",
    X,
    at="nisa.affine_select(t, [[-1, 8]], 1, t, 0.0, cmp_op=nl.add)",
    cure=edit("nl.add", "nl.greater_equal"),
)
def mask_by_addition(a: Any) -> None:
    t = nl.load(a)
    nisa.affine_select(t, [[-1, 8]], 1, t, 0.0, cmp_op=nl.add)


@refused(
    "nc_stream_shuffle.mask",
    WIDE,
    at="nisa.nc_stream_shuffle(t, t, [1, 0])",
    cure=edit("[1, 0]", "[1, 0] * 16"),
)
def short_shuffle_mask(a: Any) -> None:
    t = nl.load(a)
    nisa.nc_stream_shuffle(t, t, [1, 0])
