"""Kernels for windows against JAX on the CPU: pooling, running sums, and the gradient of pooling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.core.dtypes import as_dtype
from nki.core.errors import NkiError
from nki.graph.compile import compile_module
from nki.graph.emit.window import emit_window
from nki.graph.ir import Group, Op, Region
from nki.target.load import load_target
from tests.graph import xla
from tests.graph.emit.harness import Array, like, run, run_both, value

_REDUCERS = {"add": (lax.add, 0), "maximum": (lax.max, -np.inf), "minimum": (lax.min, np.inf), "multiply": (lax.mul, 1)}

NONE = ((0, 0),) * 4
ONE = ((0, 0), (0, 0), (1, 1), (1, 1))


def _region(name: str, dtype: str) -> Region:
    a, b, out = (value((), dtype) for _ in range(3))
    return Region((a, b), [Op(name, (a, b), (out,))], (out,))


def _case(shape: Any, name: str, sizes: Any, strides: Any, padding: Any, **more: Any) -> Any:
    rank = len(shape)
    windows = {
        "window_dimensions": sizes,
        "window_strides": strides,
        "padding": padding,
        "base_dilations": more.get("base", (1,) * rank),
        "window_dilations": more.get("dilation", (1,) * rank),
    }
    return pytest.param(shape, name, windows, more.get("dtype", "float32"), more.get("initial"), id=f"{name}-{shape}")


CASES = [
    _case((2, 3, 10, 11), "maximum", (1, 1, 2, 2), (1, 1, 2, 2), NONE),
    _case((2, 3, 10, 11), "maximum", (1, 1, 3, 3), (1, 1, 2, 2), ONE),
    _case((2, 70, 10, 11), "add", (1, 1, 3, 3), (1, 1, 1, 1), ONE),
    _case((2, 10, 11, 5), "add", (1, 2, 3, 1), (1, 2, 1, 1), ((0, 0), (0, 1), (1, 1), (0, 0))),
    _case((2, 9, 8, 5), "minimum", (1, 2, 3, 1), (1, 2, 1, 1), NONE, base=(1, 2, 1, 1), dilation=(1, 2, 1, 1)),
    _case((2, 3, 7, 7), "add", (1, 1, 7, 7), (1, 1, 1, 1), NONE, dtype="bfloat16"),
    _case((2, 3, 6, 5, 7), "maximum", (1, 1, 2, 3, 2), (1, 1, 2, 1, 2), (*NONE[:2], (1, 0), (1, 1), (0, 1))),
    _case((3, 50), "add", (1, 50), (1, 1), ((0, 0), (49, 0))),
    _case((3, 51), "add", (1, 51), (1, 1), ((0, 0), (0, 50))),
    _case((50, 3), "add", (50, 1), (1, 1), ((49, 0), (0, 0))),
    _case((3, 50), "add", (1, 50), (1, 1), ((0, 0), (49, 0)), dtype="int32"),
    _case((3, 51), "add", (1, 51), (1, 1), ((0, 0), (0, 50)), dtype="int32"),
    _case((3, 50), "maximum", (1, 50), (1, 1), ((0, 0), (49, 0))),
    _case((3, 20), "multiply", (1, 20), (1, 1), ((0, 0), (0, 19))),
    _case((3, 50), "maximum", (1, 4), (1, 2), ((0, 0), (3, 0)), dtype="int32"),
    _case((3, 52), "maximum", (1, 4), (1, 2), ((0, 0), (3, 0)), initial=0.5),
    _case((30,), "add", (4,), (2,), ((0, 0),), initial=0.5),
]


def _array(shape: Any, dtype: str) -> Array:
    random = np.random.default_rng(0)
    if dtype == "int32":
        return random.integers(-(2**29), 2**29, shape).astype(np.int32)
    return random.standard_normal(shape).astype(as_dtype(dtype).numpy)


def _initial(name: str, dtype: str, given: float | None) -> Array:
    number = _REDUCERS[name][1] if given is None else given
    if dtype == "int32" and not np.isfinite(number):
        number = np.iinfo(np.int32).min if number < 0 else np.iinfo(np.int32).max
    return np.asarray(number, as_dtype(dtype).numpy)


@pytest.mark.parametrize(("shape", "name", "windows", "dtype", "initial"), CASES)
def test_reduce_window(shape: Any, name: str, windows: Any, dtype: str, initial: float | None) -> None:
    x, start = _array(shape, dtype), _initial(name, dtype, initial)
    exact = x if dtype == "int32" else x.astype(np.float32)
    by_jax = lax.reduce_window(
        jnp.asarray(exact), jnp.asarray(start, exact.dtype), _REDUCERS[name][0], *(windows.values())
    )
    wanted = np.asarray(by_jax)
    a, b, out = like(x), like(start), value(wanted.shape, dtype)
    op = Op("reduce_window", (a, b), (out,), windows, (_region(name, dtype),))
    (found,) = run_both(Group("window", (op,), (a, b), (out,)), [x, start])
    if dtype == "int32":
        np.testing.assert_array_equal(found, wanted)
    else:
        tolerance = 2e-6 if dtype == "float32" else 2.0**-8
        np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize(
    ("shape", "sizes", "strides", "padding"),
    [
        ((2, 3, 10, 11), (1, 1, 2, 2), (1, 1, 2, 2), NONE),
        ((2, 3, 10, 11), (1, 1, 3, 3), (1, 1, 2, 2), ONE),
        ((2, 10, 11, 3), (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))),
    ],
)
def test_gradient_of_pooling_takes_the_first_of_equal_elements(
    shape: Any, sizes: Any, strides: Any, padding: Any
) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, shape).astype(np.float32)
    pooled, pullback = jax.vjp(
        lambda t: lax.reduce_window(t, -jnp.inf, lax.max, sizes, strides, padding), jnp.asarray(x)
    )
    given = random.standard_normal(pooled.shape).astype(np.float32)
    (wanted,) = pullback(jnp.asarray(given))
    zero = np.zeros((), np.float32)
    a, b, c, out = like(x), like(given), like(zero), value(shape, "float32")
    one, two, truth = value((), "float32"), value((), "float32"), value((), "bool")
    chosen = Region((one, two), [Op("compare", (one, two), (truth,), {"comparison_direction": "GE"})], (truth,))
    windows = {"window_dimensions": sizes, "window_strides": strides, "padding": padding}
    op = Op("select_and_scatter", (a, b, c), (out,), windows, (chosen, _region("add", "float32")))
    (found,) = run_both(Group("window", (op,), (a, b, c), (out,)), [x, given, zero])
    np.testing.assert_allclose(found, np.asarray(wanted), atol=2e-6)


def test_pooling_without_transposing_transfers() -> None:
    x, zero = _array((2, 10, 11, 5), "float32"), np.zeros((), np.float32)
    wanted = np.asarray(lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 2, 1, 1), "VALID"))
    a, b, out = like(x), like(zero), value(wanted.shape, "float32")
    windows = {"window_dimensions": (1, 2, 3, 1), "window_strides": (1, 2, 1, 1)}
    op = Op("reduce_window", (a, b), (out,), windows, (_region("add", "float32"),))
    (found,) = run(Group("window", (op,), (a, b), (out,)), [x, zero], target="trn1")
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_other_regions_are_refused() -> None:
    a, b, out = value((4, 8), "float32"), value((), "float32"), value((4, 8), "float32")
    windows = {"window_dimensions": (1, 1), "window_strides": (1, 1)}
    op = Op("reduce_window", (a, b), (out,), windows, (_region("atan2", "float32"),))
    with pytest.raises(NkiError) as caught:
        emit_window(Group("window", (op,), (a, b), (out,)), load_target("trn2"))
    assert caught.value.code == "graph.unsupported"
    assert "atan2" in str(caught.value)


def test_infinite_gradients_go_to_one_element() -> None:
    x, given = _array((2, 3, 6, 6), "float32"), _array((2, 3, 3, 3), "float32")
    given[0, 1, 1, 1], given[1, 0, 2, 0] = np.inf, -np.inf

    def gradient(x: Any, given: Any) -> Any:
        sizes = (1, 1, 2, 2)
        return jax.vjp(lambda t: lax.reduce_window(t, -jnp.inf, lax.max, sizes, sizes, "VALID"), x)[1](given)

    text = xla.lowered(gradient, x, given)
    xla.assert_same(compile_module(text, target="trn2").run([x, given]), xla.run(text, [x, given]))
