"""Operands whose rows lie across in device memory come to SBUF bit by bit, whatever they are, on all targets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.graph.compile import compile_module
from tests.graph import xla

Array = np.ndarray[Any, Any]


def _same(function: Any, inputs: list[Array], target: str) -> None:
    text = xla.lowered(function, *inputs)
    xla.assert_same(compile_module(text, target=target).run(inputs), xla.run(text, inputs))


def _with_infinities(*shape: int) -> Array:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    x[3, 5], x[100, 7], x[150, 1] = np.inf, np.nan, -np.inf
    return x


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_infinities_stay_in_their_rows(target: str) -> None:
    x, w = _with_infinities(200, 150), np.random.default_rng(1).standard_normal((150, 20), np.float32)
    _same(lambda x, w: (x @ w, jnp.tanh(w.T @ x.T)), [x, w], target)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8", "bool"])
def test_integers(dtype: str, target: str) -> None:
    random = np.random.default_rng(2)
    limits = None if dtype == "bool" else np.iinfo(dtype)
    x = random.random((513, 33)) > 0.5 if limits is None else random.integers(limits.min, limits.max, (513, 33), dtype)
    windows = (3, 1), (1, 1), "VALID"

    def function(x: Any) -> Any:
        if limits is None:
            return lax.reduce_window(x, np.bool_(False), lax.bitwise_or, *windows)
        return lax.reduce_window(x, np.asarray(limits.min, dtype), lax.max, *windows)

    _same(function, [x], target)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_query_that_is_not_a_number(target: str) -> None:
    q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 256, 32), np.float32) for n in range(3))
    q[0, 0, 5, 3], k[0, 1, 7, 2], q[0, 1, :, 2] = np.nan, -np.inf, np.abs(q[0, 1, :, 2]) + 0.1

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) * 0.2, -1) @ v

    _same(attention, [q, k, v], target)
