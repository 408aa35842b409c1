"""Kernels whose transfers go through more dimensions than an access pattern has, against JAX."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from tests.graph import xla

_SHAPES = {
    "a": (2, 3, 2, 3, 4, 8), "b": (2, 3, 2, 3, 8, 5), "rows": (2, 1, 2, 1, 4, 1), "columns": (1, 3, 1, 3, 1, 5),
    "some": (2, 1, 2, 3, 1, 5), "x": (3, 4, 3, 4, 3, 4), "y": (2, 3, 4, 4, 4, 4), "w": (4, 4, 4, 5),
}  # fmt: skip
_INDEX = np.array([0, 1, 1, 5, -1], np.int32)


def _array(name: str) -> np.ndarray:
    return np.random.default_rng(sorted(_SHAPES).index(name)).standard_normal(_SHAPES[name], np.float32)


def _slices(x, i):
    return jax.vmap(lambda j: lax.dynamic_slice(x, (j,) * 6, (2,) * 6))(i)


def _epilogue(a, b, rows, columns, some):
    return (a @ b + rows) * columns + some


def _other_order(a, b):
    return jnp.transpose(a @ b, (4, 2, 0, 3, 1, 5)) * 2


def _operand(y, w):
    return jnp.einsum("abcdef,cefn->abdn", y, w)


def _added(x, i):
    return jax.vjp(lambda x: _slices(x, i), x)[1](jnp.ones((5, *(2,) * 6), x.dtype))[0]


def _slice(x, i):
    return lax.dynamic_slice(x, (i[1],) * 6, (2,) * 6), lax.dynamic_slice(x, (i[3],) * 6, (2,) * 6)


def _updated(x, i):
    return lax.dynamic_update_slice(x, x[:2, :2, :2, :2, :2, :2] * 2, (i[1],) * 6)


def _replaced(x, i):
    return jax.vmap(lambda j: lax.dynamic_update_slice(x, x[:2, :2, :2, :2, :2, :2] * 2, (j,) * 6))(i)


@pytest.mark.parametrize(
    ("function", "names", "target"),
    [
        (_epilogue, "a b rows columns some", "trn2"),
        (_other_order, "a b", "trn3"),
        (_operand, "y w", "trn1"),
        (_slices, "x", "trn1"),
        (_slices, "x", "trn2"),
        (_added, "x", "trn2"),
        (_slice, "x", "trn1"),
        (_updated, "x", "trn2"),
        (_replaced, "x", "trn1"),
    ],
)
def test_six_dimensions_that_do_not_merge(function: Callable[..., object], names: str, target: str) -> None:
    inputs = [_array(name) for name in names.split()] + ([_INDEX] if names == "x" else [])
    text = xla.lowered(function, *inputs)
    xla.assert_same(compile_module(text, target=target).run(inputs), xla.run(text, inputs))


def _pooled(x):
    return lax.reduce_window(x, 0.0, lax.add, (2,) * 5, (1,) * 5, "VALID")


def _pooled_gradient(x):
    return jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,) * 5, (2,) * 5, "VALID").sum())(x)


def _convolved(x):
    return lax.conv(x, jnp.ones((2, 3, 2, 2, 2, 2)), (1,) * 4, "VALID")


@pytest.mark.parametrize(
    ("function", "shape", "said"),
    [
        (_pooled, (3, 4, 3, 4, 3), "windows go along 5 dimensions"),
        (_pooled_gradient, (4, 4, 4, 4, 4), "windows go along 5 dimensions"),
        (_convolved, (1, 3, 4, 4, 4, 4), "windows go along 4 dimensions"),
        (lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "SAME"), (2, 60000), "no room on the chip"),
    ],
)  # fmt: skip
def test_windows_that_no_kernel_has(function: Callable[..., object], shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(GraphError, match=said) as caught:
        compile_module(xla.lowered(function, np.ones(shape, np.float32)), target="trn2")
    assert caught.value.code == "graph.unsupported" and "test_many_dimensions.py" in str(caught.value.location)
