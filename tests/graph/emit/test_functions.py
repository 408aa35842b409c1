"""Functions of JAX through the whole compiler, whose kernels come from the pointwise, rows and move emitters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tests.graph.emit.harness import check_function


def _numbers(*shape: int, dtype: type = np.float32) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


X = _numbers(64, 96)
G = _numbers(96)
HALF = _numbers(2, 33, 96, dtype=ml_dtypes.bfloat16)
WHOLE = np.random.default_rng(2).integers(-(2**31), 2**31 - 1, (50, 40)).astype(np.int32)


def _layer_norm(x: Any, g: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g


def _rms_norm(x: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _cross_entropy(x: Any) -> Any:
    return -(jax.nn.log_softmax(x) * jax.nn.one_hot(jnp.arange(64), 96)).sum(-1).mean()


def _adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
    "gelu": (jax.nn.gelu, (X,), 1e-6),
    "layer_norm": (_layer_norm, (X, G), 1e-5),
    "rms_norm of bfloat16": (_rms_norm, (HALF,), 2e-2),
    "cross_entropy": (_cross_entropy, (X,), 1e-5),
    "its gradient": (jax.grad(_cross_entropy), (X,), 1e-6),
    "adam": (_adam, (X, X, X, abs(X)), 1e-6),
    "extremes": (lambda x: (x.argmax(-1), x.argmin(0), x.max(), x.min(1)), (X,), 0),
    "causal mask": (lambda x: jnp.where(jnp.tril(jnp.ones((64, 96), bool)), x, -jnp.inf), (X,), 0),
    "heads": (lambda x: x.reshape(4, 16, 8, 12).transpose(0, 2, 1, 3) * 2, (X,), 0),
    "integers": (lambda i: ((i * 7 + 3) // 5, i % 11, i << 2, jnp.abs(i), i.sum(), i.max(0)), (WHOLE,), 0),
    "truth": (lambda x: (jnp.any(x > 2, axis=1), jnp.all(x > -3, axis=0), jnp.sum(x > 0)), (X,), 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    function, inputs, error = FUNCTIONS[name]
    check_function(function, inputs, error)
