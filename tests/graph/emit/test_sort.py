"""Kernels for sorts, the largest elements and random numbers, against NumPy and JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.random import threefry_2x32

from nki.core.dtypes import as_dtype
from nki.graph.ir import Group, Op, Region
from tests.graph.emit.harness import Array, like, run, run_both, value


def _numbers(shape: Any, dtype: str, repeated: bool) -> Array:
    random = np.random.default_rng(list(shape))
    numbers = random.integers(-9, 9, shape) if repeated else random.standard_normal(shape) * 1000
    if dtype == "int32":
        return (numbers * 100_000_007 / 9).astype(np.int32)
    return numbers.astype(as_dtype(dtype).numpy)


@pytest.mark.parametrize(
    ("shape", "dim", "direction", "dtype"),
    [
        ((3, 8), 1, "LT", "float32"),
        ((3, 50), 1, "LT", "float32"),
        ((50, 3), 0, "GT", "float32"),
        ((4, 33), 1, "GT", "int32"),
        ((130, 20), 1, "LT", "bfloat16"),
        ((2, 5, 3), 1, "LT", "float32"),
        ((3, 1), 1, "LT", "float32"),
    ],
)
def test_sort_is_stable_and_takes_other_operands_along(shape: Any, dim: int, direction: str, dtype: str) -> None:
    x = _numbers(shape, dtype, repeated=True)
    count = np.arange(shape[dim], dtype=np.int32).reshape([-1 if d == dim else 1 for d in range(len(shape))])
    places = np.broadcast_to(count, shape).copy()
    order = np.argsort(-x.astype(np.float64) if direction == "GT" else x, axis=dim, kind="stable")
    a, b = like(x), like(places)
    one, two, *rest = value((), dtype), value((), dtype), value((), "int32"), value((), "int32")
    truth = value((), "bool")
    kind = {"compare_type": "SIGNED" if dtype == "int32" else "TOTALORDER", "comparison_direction": direction}
    region = Region((one, two, *rest), [Op("compare", (one, two), (truth,), kind)], (truth,))
    results = value(shape, dtype), value(shape, "int32")
    op = Op("sort", (a, b), results, {"dimension": dim, "is_stable": True}, (region,))
    found = run_both(Group("sort", (op,), (a, b), results), [x, places])
    np.testing.assert_array_equal(found[0], np.take_along_axis(x, order, dim))
    np.testing.assert_array_equal(found[1], order)


@pytest.mark.parametrize(
    ("shape", "count", "dtype", "repeated"),
    [
        ((3, 100), 5, "float32", False),
        ((3, 100), 20, "float32", True),
        ((130, 6), 3, "float32", True),
        ((2, 3, 40), 8, "bfloat16", False),
        ((3, 50), 4, "int32", True),
        ((2, 20000), 10, "float32", False),
        ((2, 20000), 10, "float32", True),
    ],
)
def test_top_k_takes_the_first_of_equal_elements(shape: Any, count: int, dtype: str, repeated: bool) -> None:
    x = _numbers(shape, dtype, repeated)
    values, places = (np.asarray(array) for array in lax.top_k(jnp.asarray(x), count))
    a, results = like(x), (value(values.shape, dtype), value(values.shape, "int32"))
    op = Op("chlo.top_k", (a,), results, {"k": count})
    found = run_both(Group("sort", (op,), (a,), results), [x])
    np.testing.assert_array_equal(found[0], values)
    np.testing.assert_array_equal(found[1], places)


def test_top_k_of_masked_rows() -> None:
    x = np.full((2, 30), -np.inf, np.float32)
    x[0, [4, 9]], x[1, 7] = (1.0, 2.0), np.inf
    values, places = (np.asarray(array) for array in lax.top_k(jnp.asarray(x), 12))
    a, results = like(x), (value(values.shape, "float32"), value(values.shape, "int32"))
    found = run_both(Group("sort", (Op("chlo.top_k", (a,), results, {"k": 12}),), (a,), results), [x])
    np.testing.assert_array_equal(found[0], values)
    np.testing.assert_array_equal(found[1], places)


@pytest.mark.parametrize("count", [10, 13, 300])
def test_bits_are_those_of_threefry(count: int) -> None:
    state = np.array([123456789, 0xDEADBEEF, 5, 7], np.uint32)
    half = -(-count // 2)
    counters = np.concatenate([np.arange(half, dtype=np.uint32) + 5, np.full(half, 7, np.uint32)])
    wanted = np.asarray(threefry_2x32(jnp.asarray(state[:2]), jnp.asarray(counters)))[:count]
    a, results = like(state), (value((4,), "uint32"), value((count,), "uint32"))
    op = Op("rng_bit_generator", (a,), results, {"rng_algorithm": "THREE_FRY"})
    found = run_both(Group("rng", (op,), (a,), results), [state])
    np.testing.assert_array_equal(found[1], wanted)
    np.testing.assert_array_equal(found[0], [123456789, 0xDEADBEEF, 5 + half, 7])


@pytest.mark.parametrize(
    ("kind", "dtype", "mean", "deviation"),
    [
        ("UNIFORM", "float32", 3.5, 3 / 12**0.5),
        ("NORMAL", "float32", 2.0, 5.0),
        ("UNIFORM", "int32", 3.0, (8 / 12) ** 0.5),
    ],
)
def test_distributions(kind: str, dtype: str, mean: float, deviation: float) -> None:
    first, second = (np.asarray(number, as_dtype(dtype).numpy) for number in (2, 5))
    a, b, out = like(first), like(second), value((50, 400), dtype)
    op = Op("rng", (a, b), (out,), {"rng_distribution": kind})
    (found,) = run(Group("rng", (op,), (a, b), (out,)), [first, second])
    assert abs(found.mean() - mean) < 0.03 * deviation
    assert abs(found.std() - deviation) < 0.03 * deviation
    if kind == "UNIFORM":
        assert found.min() >= 2
        assert found.max() < 5
