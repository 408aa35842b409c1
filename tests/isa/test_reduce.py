"""Meaning of the reductions: orders, special values, casts, axes, and running values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.language as nl
from nki.core import dtypes
from nki.isa import alu
from nki.isa.reduce import tensor_partition_reduce, tensor_reduce, tensor_scalar_cumulative, tensor_scalar_reduce
from nki.spec.engine import reduce_cmd
from tests.isa.tiles import empty, filled, load, store
from tests.support import both, rejection

INF, NAN = float("inf"), float("nan")


def reduce(a: Any, op: Any, axis: Any, shape: Any, dtype: Any = np.float32, **options: Any) -> Any:
    """``tensor_reduce`` of an array, eagerly and compiled."""

    def kernel(values: Any) -> Any:
        result = empty(shape, dtype)
        tensor_reduce(result, op, load(values), axis, **options)
        return store(result)

    return both(kernel, a)


# ---- tensor_reduce


def lanes(row: Any, function: Any, identity: float) -> Any:
    """The documented order of all but sums: element i goes to lane i % 16; then 8, 4, 2, 1."""
    state = [np.float32(identity)] * 16
    for i, value in enumerate(row):
        state[i % 16] = value if i < 16 else function(state[i % 16], value)
    for half in (8, 4, 2, 1):
        state = [function(state[i], state[i + half]) for i in range(half)]
    return state[0]


@pytest.mark.parametrize("count", [1, 5, 16, 17, 100])
def test_the_order_of_a_reduction_is_fixed(count: int) -> None:
    """Of sums see test_sums_in_order.py."""
    a = np.random.default_rng(7).standard_normal((3, count)).astype(np.float32)
    wanted = np.array([[lanes(row, np.multiply, 1)] for row in a])
    np.testing.assert_array_equal(reduce(a, alu.MULTIPLY, 1, (3, 1)), wanted)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    partitions=st.integers(1, 9),
    data=st.data(),
    op=st.sampled_from([alu.ADD, alu.MAXIMUM, alu.MINIMUM, alu.MULTIPLY]),
    dtype=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint16, np.int32]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_trailing_axes_of_any_shape(sizes: Any, partitions: int, data: Any, op: Any, dtype: Any, seed: int) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    rank = len(sizes) + 1
    axis = list(range(rank - count, rank))
    if data.draw(st.booleans()):
        axis = [i - rank for i in axis]
    r = np.random.default_rng(seed)
    a = np.clip(r.standard_normal((partitions, *sizes)) * 2, 0 if dtype is np.uint16 else -9, 9).astype(dtype)
    kept = sizes[: len(sizes) - count]
    shape = (partitions, *kept) if kept else (partitions, 1)
    function = {alu.ADD: np.sum, alu.MAXIMUM: np.max, alu.MINIMUM: np.min, alu.MULTIPLY: np.prod}[op]
    wanted = function(a.astype(np.float64), axis=tuple(range(rank - count, rank))).reshape(shape)
    np.testing.assert_allclose(reduce(a, op, axis, shape), wanted, rtol=1e-5, atol=1e-5)


def test_axes_count_the_dimensions_that_the_operand_has() -> None:
    """NKI 0.3.0: axis=1 of a 3-D tile is its second dimension, and so not the last one."""

    def kernel(a: Any) -> Any:
        result = empty((4, 1))
        tensor_reduce(result, alu.ADD, load(a), axis=1)
        return store(result)

    assert rejection(kernel, np.ones((4, 3, 5), np.float32)).code == "tensor_reduce.axis"


def test_special_values() -> None:
    a = np.array([[1, NAN, 3], [INF, -INF, 0], [-0.0, -0.0, -0.0], [INF, 1, 2], [1e-45, 1e-45, 0]], np.float32)
    total = reduce(a, alu.ADD, 1, (5, 1))[:, 0]
    np.testing.assert_array_equal(total, np.array([NAN, NAN, 0, INF, 3e-45], np.float32))
    np.testing.assert_array_equal(reduce(a, alu.MAXIMUM, 1, (5, 1))[:, 0], np.float32([NAN, INF, 0, INF, 1e-45]))
    np.testing.assert_array_equal(reduce(a, alu.MINIMUM, 1, (5, 1))[:, 0], np.float32([NAN, -INF, 0, 1, 0]))
    assert np.signbit(reduce(np.zeros((1, 2), np.float32), alu.ADD, 1, (1, 1), negate=True)[0, 0])


def test_negative_maximum() -> None:
    a = np.random.default_rng(1).standard_normal((8, 30)).astype(np.float32)
    np.testing.assert_array_equal(reduce(a, alu.MAXIMUM, -1, (8, 1), negate=True), -a.max(1, keepdims=True))


def test_sums_round_to_nearest_even_and_saturate() -> None:
    a = np.array([[100, 100, 100], [-100, -100, 0], [1, 1, 1]], np.int8)
    np.testing.assert_array_equal(reduce(a, alu.ADD, 1, (3, 1), np.int8), [[127], [-128], [3]])
    halves = np.array([[0.5, 2.0], [0.5, 3.0]], np.float32)
    np.testing.assert_array_equal(reduce(halves, alu.ADD, 1, (2, 1), np.int32), [[2], [4]])


def test_integers_pass_through_float32_but_bits_do_not() -> None:
    a = np.array([[(1 << 24) + 1, 0], [0x7FFFFFFF, 1]], np.int32)
    np.testing.assert_array_equal(reduce(a, alu.MAXIMUM, 1, (2, 1), np.int32), [[1 << 24], [0x7FFFFFFF]])
    np.testing.assert_array_equal(reduce(a, alu.BITWISE_OR, 1, (2, 1), np.int32), [[(1 << 24) + 1], [0x7FFFFFFF]])


@pytest.mark.parametrize("keepdims", [False, True])
def test_keepdims_matches_either_form_of_dst(keepdims: bool) -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for shape in ((2, 3), (2, 3, 1), (2, 1, 3)):
        got = reduce(a, alu.ADD, 2, shape, keepdims=keepdims)
        np.testing.assert_array_equal(got.reshape(2, 3), a.sum(2))


def test_broadcast_and_reversed_views_are_read_in_their_own_order() -> None:
    def kernel(a: Any) -> Any:
        tile, result = load(a), empty((4, 3))
        tensor_reduce(result, alu.ADD, tile.permute((0, 2, 1)), axis=2)
        return store(result)

    a = np.random.default_rng(2).integers(-9, 9, (4, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(both(kernel, a), a.sum(1))


# ---- tensor_partition_reduce


def test_partition_reduce_saturates_and_keeps_free_dimensions() -> None:
    def kernel(a: Any) -> Any:
        total, mean = empty((1, 2, 3), np.int8), empty((1, 2, 3))
        tensor_partition_reduce(total, alu.ADD, load(a))
        tensor_partition_reduce(mean, alu.AVERAGE, load(a))
        return store(total), store(mean)

    a = np.full((128, 2, 3), 3, np.int8)
    a[:, 1] = -1
    total, mean = both(kernel, a)
    np.testing.assert_array_equal(total[0], [[127] * 3, [-128] * 3])
    np.testing.assert_array_equal(mean[0], [[3] * 3, [-1] * 3])


def test_partition_reduce_needs_sbuf() -> None:
    def kernel(a: Any) -> Any:
        result = empty((1, 3))
        tensor_partition_reduce(result, alu.ADD, load(a, nl.psum))
        return store(result)

    assert rejection(kernel, np.ones((4, 3), np.float32)).code == "operand.region"


# ---- tensor_scalar_reduce


def test_the_reduction_takes_values_before_they_round_and_dst_may_be_the_source() -> None:
    def kernel(a: Any) -> Any:
        tile, total = load(a, dtype=dtypes.bfloat16), empty((2, 1))
        tensor_scalar_reduce(tile, tile, alu.ADD, 2.0**-9, alu.ADD, total)
        return store(tile), store(total)

    tile, total = both(kernel, np.ones((2, 4), np.float32))
    np.testing.assert_array_equal(tile.astype(np.float32), np.ones((2, 4)))
    np.testing.assert_array_equal(total, [[4 + 2.0**-7]] * 2)


def test_negating_the_result_leaves_the_registers() -> None:
    def kernel(a: Any) -> Any:
        tile, junk, first, second = load(a), empty(a.shape), empty((2, 1)), empty((2, 1))
        tensor_scalar_reduce(junk, tile, alu.ADD, 0.0, alu.MAXIMUM, first, reduce_res_negate=True)
        command = reduce_cmd.reduce
        tensor_scalar_reduce(junk, tile, alu.SUBTRACT, 9.0, alu.MAXIMUM, second, reduce_cmd=command)
        return store(first), store(second)

    first, second = both(kernel, np.array([[1, 5], [-3, -2]], np.float32))
    np.testing.assert_array_equal(first, [[-5], [2]])
    np.testing.assert_array_equal(second, [[5], [-2]])


def test_an_operand_column_is_float32() -> None:
    def kernel(a: Any) -> Any:
        junk = empty(a.shape)
        tensor_scalar_reduce(junk, load(a), alu.ADD, filled((2, 1), 0, dtypes.bfloat16), alu.ADD)
        return store(junk)

    assert rejection(kernel, np.ones((2, 2), np.float32)).code == "operand.dtype"


@pytest.mark.parametrize("op", [alu.ABS, alu.SQUARE, alu.RELU])
def test_unary_operators_on_the_newest_target(op: Any) -> None:
    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        tensor_scalar_reduce(result, load(a), op, 0.0, alu.ADD)
        return store(result)

    a = np.array([[-2, 0.5, -INF, NAN]], np.float32)
    wanted = {alu.ABS: np.abs(a), alu.SQUARE: a * a, alu.RELU: np.maximum(a, 0)}[op]
    np.testing.assert_array_equal(both(kernel, a, target="trn3"), wanted)


# ---- tensor_scalar_cumulative


def cumulative(a: Any, op1: Any, dtype: Any = np.float32) -> Any:
    def kernel(values: Any) -> Any:
        result = empty(values.shape, dtype)
        tensor_scalar_cumulative(result, load(values), alu.MULTIPLY, op1, 1.0)
        return store(result)

    return both(kernel, a)


@given(shape=st.tuples(st.integers(1, 9), st.integers(1, 70)), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_running_values_are_those_of_numpy_accumulate(shape: Any, seed: int) -> None:
    a = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    for op, function in ((alu.ADD, np.add), (alu.MULTIPLY, np.multiply), (alu.MAXIMUM, np.maximum)):
        np.testing.assert_array_equal(cumulative(a, op), function.accumulate(a, axis=1))


def test_subtract_takes_the_old_value_from_the_new_one() -> None:
    np.testing.assert_array_equal(cumulative(np.array([[1, 2, 3, 4]], np.float32), alu.SUBTRACT), [[1, 1, 2, 2]])


def test_the_running_value_does_not_round() -> None:
    a = np.full((1, 300), 1.0, np.float32)
    np.testing.assert_array_equal(cumulative(a, alu.ADD, np.uint8)[0, 250:260], [251, 252, 253, 254, *[255] * 6])
    halves = cumulative(np.full((1, 4), 0.5, np.float32), alu.ADD, np.int8)
    np.testing.assert_array_equal(halves, [[0, 1, 2, 2]])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, dtypes.tfloat32])
def test_wide_integers_are_refused(dtype: Any) -> None:
    def kernel(a: Any) -> Any:
        result = empty(a.shape, dtype)
        tensor_scalar_cumulative(result, load(a), alu.ADD, alu.ADD, 0.0)
        return store(result)

    assert rejection(kernel, np.ones((2, 2), np.float32)).code == "operand.dtype"
