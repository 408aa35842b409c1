"""Kernels for gathers and scatters against JAX on the CPU, indices outside and repeated ones among them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.core.dtypes import as_dtype
from nki.graph.compile import compile_module
from nki.graph.ir import Group, Op, Region
from tests.graph import xla
from tests.graph.emit.harness import Array, like, run, run_both, value

G, S = lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers


def _numbers(shape: Any, dtype: str, seed: int = 0) -> Array:
    random = np.random.default_rng([seed, *shape])
    if dtype == "int32":
        return random.integers(-(2**28), 2**28, shape).astype(np.int32)
    return random.standard_normal(shape).astype(as_dtype(dtype).numpy)


def _indices(low: int, high: int, shape: Any) -> Array:
    return np.random.default_rng(7).integers(low, high, shape).astype(np.int32)


GATHERS = [
    ((100, 16), _indices(0, 100, (7, 30, 1)), G((2,), (0,), (0,)), (1, 16), "float32"),
    ((100, 16), _indices(-5, 120, (300, 1)), G((1,), (0,), (0,)), (1, 16), "bfloat16"),
    ((5, 100, 16), _indices(0, 100, (9, 1)), G((0, 2), (1,), (1,)), (5, 1, 16), "float32"),
    ((5, 10, 16), _indices(0, 9, (9, 2)), G((1, 2), (0,), (1, 0)), (1, 3, 16), "float32"),
    ((5, 10, 16), _indices(0, 9, (5, 4, 1)), G((2,), (1,), (1,), (0,), (0,)), (1, 1, 16), "float32"),
    ((5, 10), _indices(0, 9, (5, 4, 1)), G((), (1,), (1,), (0,), (0,)), (1, 1), "int32"),
    ((5, 10), _indices(0, 9, (2,)), G((0, 1), (), (0, 1)), (2, 3), "float32"),
]


@pytest.mark.parametrize(("shape", "indices", "numbers", "sizes", "dtype"), GATHERS)
@pytest.mark.parametrize("target", ["trn2", "trn1"])
def test_gather(shape: Any, indices: Array, numbers: Any, sizes: Any, dtype: str, target: str) -> None:
    x = _numbers(shape, dtype)
    wanted = np.asarray(lax.gather(jnp.asarray(x), jnp.asarray(indices), numbers, sizes, mode="clip"))
    a, b, out = like(x), like(indices), value(wanted.shape, dtype)
    attributes = {
        "offset_dims": numbers.offset_dims,
        "collapsed_slice_dims": numbers.collapsed_slice_dims,
        "operand_batching_dims": numbers.operand_batching_dims,
        "start_indices_batching_dims": numbers.start_indices_batching_dims,
        "start_index_map": numbers.start_index_map,
        "index_vector_dim": indices.ndim - 1,
        "slice_sizes": sizes,
    }
    made = Group("gather", (Op("gather", (a, b), (out,), attributes),), (a, b), (out,))
    found = run_both(made, [x, indices]) if target == "trn2" else run(made, [x, indices], target=target)
    np.testing.assert_array_equal(found[0], wanted)


ROWS = S((1,), (0,), (0,))
_PAIRS = np.stack([_indices(0, 4, 6), np.array([0, 3, 6, 9, 1, 8])], 1).astype(np.int32)
_APART = np.random.default_rng(1).permutation(20)[:12, None].astype(np.int32)
SCATTERS = [
    ("add", (100, 16), _indices(0, 100, (40, 1)), (40, 16), ROWS, "float32", False),
    ("add", (20, 600), _indices(-3, 25, (300, 1)), (300, 600), ROWS, "float32", False),
    ("maximum", (20, 16), _indices(0, 20, (30, 1)), (30, 16), ROWS, "float32", False),
    ("multiply", (20, 16), _APART, (12, 16), ROWS, "float32", True),
    ("add", (20,), _indices(0, 20, (30, 1)), (30,), S((), (0,), (0,)), "int32", False),
    ("", (20, 16), _APART, (12, 16), ROWS, "bfloat16", True),
    ("add", (4, 10, 16), _PAIRS, (6, 2, 16), S((1, 2), (0,), (0, 1)), "float32", False),
    ("add", (5, 10, 8), _indices(0, 9, (5, 4, 1)), (5, 4, 8), S((2,), (1,), (1,), (0,), (0,)), "float32", False),
    ("", (2, 3, 50, 8), np.array([4], np.int32), (2, 3, 1, 8), S((0, 1, 2, 3), (), (2,)), "float32", False),
]
_BY_JAX = {"add": lax.scatter_add, "maximum": lax.scatter_max, "multiply": lax.scatter_mul, "": lax.scatter}


def _region(name: str, dtype: str) -> Region:
    a, b, out = (value((), dtype) for _ in range(3))
    return Region((a, b), [Op(name, (a, b), (out,))], (out,)) if name else Region((a, b), [], (b,))


@pytest.mark.parametrize(("name", "shape", "indices", "updates", "numbers", "dtype", "unique"), SCATTERS)
@pytest.mark.parametrize("target", ["trn2", "trn1"])
def test_scatter(
    name: str, shape: Any, indices: Array, updates: Any, numbers: Any, dtype: str, unique: bool, target: str
) -> None:
    x, u = _numbers(shape, dtype), _numbers(updates, dtype, 1)
    given = [jnp.asarray(array) for array in (x, indices, u)]
    wanted = np.asarray(_BY_JAX[name](*given, numbers, mode="drop", unique_indices=unique))
    a, b, c, out = like(x), like(indices), like(u), value(shape, dtype)
    attributes = {
        "update_window_dims": numbers.update_window_dims,
        "inserted_window_dims": numbers.inserted_window_dims,
        "input_batching_dims": numbers.operand_batching_dims,
        "scatter_indices_batching_dims": numbers.scatter_indices_batching_dims,
        "scatter_dims_to_operand_dims": numbers.scatter_dims_to_operand_dims,
        "index_vector_dim": indices.ndim - 1,
        "unique_indices": unique,
    }
    made = Group("scatter", (Op("scatter", (a, b, c), (out,), attributes, (_region(name, dtype),)),), (a, b, c), (out,))
    found = run_both(made, [x, indices, u]) if target == "trn2" else run(made, [x, indices, u], target=target)
    if dtype == "float32":
        np.testing.assert_allclose(found[0], wanted, atol=1e-5)
    else:
        np.testing.assert_array_equal(found[0], wanted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_infinite_updates_stay_in_their_rows(dtype: str, target: str) -> None:
    x, updates = _numbers((9, 5), dtype), _numbers((8, 5), dtype, 1)
    x[7, 0], updates[0, 0], updates[2, 1], updates[3, 1] = np.inf, np.inf, np.inf, -np.inf
    updates[4, 2], updates[5, 3], updates[6, 4], updates[7, 4] = np.nan, -np.inf, np.inf, np.inf
    rows = np.array([1, 1, 3, 3, 4, 7, 8, 8], np.int32)
    inputs = [x, rows, updates]
    text = xla.lowered(lambda x, i, u: x.at[i].add(u), *(jnp.asarray(each) for each in inputs))
    xla.assert_same(compile_module(text, target=target).run(inputs), xla.run(text, inputs))


def test_unsigned_indices_beyond_signed_ones() -> None:
    def function(x: Any, i: Any) -> Any:
        one, two = i[0], i[1]
        added = lax.scatter_add(x, i[:, None], jnp.ones((2, 8)), S((1,), (0,), (0,)), mode="drop")
        read = lax.gather(x, i[:, None], G((1,), (0,), (0,)), (1, 8), mode="clip")
        part = lax.dynamic_slice(x, (one, two), (2, 2))
        return part, lax.dynamic_update_slice(x, part, (two, one)), added, read

    inputs = [_numbers((10, 8), "float32"), np.array([3, 4_000_000_000], np.uint32)]
    text = xla.lowered(function, *inputs)
    xla.assert_same(compile_module(text, target="trn2").run(inputs), xla.run(text, inputs))
