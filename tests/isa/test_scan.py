"""Meaning of the scan and of scalar_tensor_tensor beyond their examples."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.language as nl
from nki.core import dtypes
from nki.isa import alu
from nki.isa.scan import scalar_tensor_tensor, tensor_tensor_scan
from tests.isa.tiles import empty, load, store
from tests.support import both, rejection

INF, NAN = float("inf"), float("nan")


def scan(a: Any, b: Any, initial: Any, op0: Any, op1: Any, dtype: Any = np.float32, **options: Any) -> Any:
    """``tensor_tensor_scan`` of arrays with a number as the initial state, eagerly and compiled."""

    def kernel(x: Any, y: Any) -> Any:
        result = empty(x.shape, dtype)
        tensor_tensor_scan(result, load(x), load(y), initial, op0, op1, **options)
        return store(result)

    return both(kernel, a, b)


def test_multiply_add_with_a_constant_is_a_recursive_filter() -> None:
    values = np.random.default_rng(1).standard_normal((128, 700)).astype(np.float32)
    got = scan(np.full_like(values, 0.75), values, 0.0, alu.MULTIPLY, alu.ADD)
    wanted = scipy.signal.lfilter([1.0], [1.0, -0.75], values.astype(np.float64), axis=1)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 40)),
    source=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, np.int8]),
    result=st.sampled_from([np.float32, ml_dtypes.bfloat16, np.float16]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25)
def test_cumulative_sums_of_any_dtype_round_only_what_is_stored(
    shape: Any, source: Any, result: Any, seed: int
) -> None:
    a = (np.random.default_rng(seed).standard_normal(shape) * 3).astype(source)
    got = scan(np.ones(shape, source), a, 0.5, alu.MULTIPLY, alu.ADD, result)
    start = np.full((shape[0], 1), 0.5, np.float32)
    wanted = np.cumsum(np.hstack([start, a.astype(np.float32)]), axis=1, dtype=np.float32)[:, 1:].astype(result)
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))


def test_a_running_maximum_and_its_special_values() -> None:
    a = np.array([[1, -INF, 3, NAN, 9], [-0.0, 0.0, 1e-45, INF, 2]], np.float32)
    got = scan(np.zeros_like(a), a, -INF, alu.ADD, alu.MAXIMUM)
    np.testing.assert_array_equal(got, np.maximum.accumulate(a, axis=1))


def test_the_first_element_sees_the_initial_state() -> None:
    a, b = np.array([[2.0, 3.0]], np.float32), np.array([[10.0, 100.0]], np.float32)
    np.testing.assert_array_equal(scan(a, b, 7.0, alu.SUBTRACT, alu.SUBTRACT), [[-15, -82]])
    np.testing.assert_array_equal(scan(a, b, 7.0, alu.SUBTRACT, alu.SUBTRACT, reverse0=True), [[-5, -108]])
    np.testing.assert_array_equal(scan(a, b, 7.0, alu.SUBTRACT, alu.SUBTRACT, reverse1=True), [[15, 112]])


def test_comparisons_and_logic_give_one_and_zero() -> None:
    """A run of equal flags: 1 until the first 0."""
    flags = np.array([[1, 1, 0, 1], [5, 0, 0, 2]], np.float32)
    got = scan(np.ones_like(flags), flags, 1.0, alu.MULTIPLY, alu.LOGICAL_AND, np.uint8)
    np.testing.assert_array_equal(got, [[1, 1, 0, 0], [1, 0, 0, 0]])


def test_dst_may_be_an_operand() -> None:
    def kernel(x: Any) -> Any:
        tile = load(x)
        tensor_tensor_scan(tile, tile, tile, 0, alu.MULTIPLY, alu.ADD)
        return store(tile)

    np.testing.assert_array_equal(both(kernel, np.array([[1, 2, 3]], np.float32)), [[1, 4, 15]])


def test_results_saturate_in_integers() -> None:
    a = np.full((1, 5), 60.0, np.float32)
    got = scan(np.ones_like(a), a, 0.0, alu.MULTIPLY, alu.ADD, np.int8)
    np.testing.assert_array_equal(got, [[60, 120, 127, 127, 127]])


# ---- scalar_tensor_tensor


@given(
    op0=st.sampled_from([alu.ADD, alu.SUBTRACT, alu.MULTIPLY, alu.MAXIMUM, alu.MINIMUM]),
    op1=st.sampled_from([alu.ADD, alu.SUBTRACT, alu.MULTIPLY, alu.MAXIMUM, alu.MINIMUM]),
    reverse=st.tuples(st.booleans(), st.booleans()),
    shapes=st.sampled_from([((5, 6), (5, 2, 3)), ((3, 4), (3, 4)), ((2, 2, 2), (2, 4))]),
)
@settings(max_examples=30)
def test_two_steps_are_the_same_as_two_instructions_of_numpy(op0: Any, op1: Any, reverse: Any, shapes: Any) -> None:
    def kernel(x: Any, y: Any) -> Any:
        result = empty(shapes[0])
        scalar_tensor_tensor(result, load(x), op0, 1.25, op1, load(y), reverse0=reverse[0], reverse1=reverse[1])
        return store(result)

    def step(op: Any, first: Any, second: Any, swap: bool) -> Any:
        function = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}.get(op.name, getattr(np, op.name))
        return function(second, first) if swap else function(first, second)

    r = np.random.default_rng(4)
    x, y = (r.standard_normal(shape).astype(np.float32) for shape in shapes)
    wanted = step(op1, step(op0, x, np.float32(1.25), reverse[0]), y.reshape(x.shape), reverse[1])
    np.testing.assert_array_equal(both(kernel, x, y), wanted)


def test_the_old_dtype_argument_is_accepted_where_it_means_nothing_else() -> None:
    def kernel(a: Any) -> Any:
        tile, result = load(a), empty(a.shape, dtypes.bfloat16, nl.psum)
        scalar_tensor_tensor(result, tile, alu.MULTIPLY, 2.0, alu.ADD, tile, dtype=dtypes.bfloat16)  # type: ignore[call-arg]
        return store(result)

    with pytest.warns(DeprecationWarning, match="dtype"):
        got = both(kernel, np.ones((2, 2), np.float32))
    np.testing.assert_array_equal(got.astype(np.float32), np.full((2, 2), 3))


def test_the_old_dtype_argument_is_refused_where_it_would_change_the_result() -> None:
    def kernel(a: Any) -> Any:
        tile, result = load(a), empty(a.shape)
        scalar_tensor_tensor(result, tile, alu.MULTIPLY, 2.0, alu.ADD, tile, dtype=dtypes.bfloat16)  # type: ignore[call-arg]
        return store(result)

    assert rejection(kernel, np.ones((2, 2), np.float32)).code == "call.deprecated"
