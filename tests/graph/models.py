"""Functions of JAX that together use every operation that models need; each with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.graph import xla

_RANDOM = np.random.default_rng(5)


def _f(*shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _i(top: int, *shape: int) -> Any:
    return _RANDOM.integers(0, top, shape).astype(np.int32)


def _block(x: Any, w: Any, b: Any, g: Any) -> Any:
    h = x @ w + b
    mean = h.mean(-1, keepdims=True)
    h = (h - mean) * lax.rsqrt(((h - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g
    return jax.nn.softmax(jax.nn.gelu(h))


def _attention(x: Any, w: Any) -> Any:
    q, k, v = jnp.split((x @ w).reshape(2, 8, 3, 2, 4), 3, axis=2)
    q, k, v = (t[:, :, 0].transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / 2.0
    scores = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), scores, -jnp.inf)
    return (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(2, 8, 8)


def _loops(x: Any, n: Any) -> Any:
    total = lax.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x)
    chosen = lax.switch(n[0], [lambda a: a + 1, lambda a: a * 2, lambda a: -a], total)
    return lax.while_loop(lambda c: c[1] < 4, lambda c: (c[0] + chosen, c[1] + 1), (x, n[1]))


def _convolutions(x: Any, w: Any) -> Any:
    y = lax.conv_general_dilated(x, w, (2, 1), [(1, 2), (0, 1)], rhs_dilation=(1, 2), feature_group_count=2)
    pooled = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "SAME")
    return pooled, jax.grad(
        lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID").sum()
    )(y)


def _indexing(x: Any, i: Any) -> Any:
    taken = x[i]
    updated = x.at[i].add(1.0).at[2].set(taken[0])
    window = lax.dynamic_slice(x, (i[0], 1), (2, 3))
    return updated, lax.dynamic_update_slice(x, window, (i[1], 0)), jnp.pad(x, ((1, 2), (0, 1)), constant_values=3.0)


def _sorting(x: Any) -> Any:
    order = jnp.argsort(x, axis=-1)
    return order, jnp.sort(x, axis=0), lax.top_k(x, 3), jnp.argmax(x, -1), jnp.cumsum(x, 1), jnp.flip(x, 0)


def _functions(x: Any) -> Any:
    positive = jnp.abs(x) + 0.5
    inside = jnp.tanh(x) * 0.9
    return (
        lax.erf(x), lax.erfc(x), lax.erf_inv(inside), lax.lgamma(positive), lax.digamma(positive), jnp.arcsin(inside),
        jnp.arctan(x), jnp.sinh(x), jnp.arccosh(positive + 1), jnp.arctanh(inside), lax.cbrt(x), jnp.expm1(x),
        jnp.log1p(positive), lax.logistic(x), jnp.tan(inside), lax.rsqrt(positive), jnp.round(x), jnp.floor(x),
        jnp.sign(x), jnp.arctan2(x, positive), lax.square(x), jnp.isfinite(x), lax.integer_pow(x, 3), x ** 2.5 * 0 + x,
    )  # fmt: skip


def _integers(i: Any, j: Any) -> Any:
    return (
        i // (j + 1), i % (j + 1), i << 2, i >> 1, lax.shift_right_logical(i, 1), i & j, i | j, i ^ j, ~i,
        lax.population_count(i), lax.clz(i), jnp.clip(i, 2, 5), i.astype(jnp.float32),
        lax.bitcast_convert_type(i, jnp.float32), i.astype(jnp.int8), (i > j) ^ (j > 3),
        jnp.where(i > j, i, j), jnp.prod(i, axis=0), i.astype(jnp.uint32) * 3,
    )  # fmt: skip


def _small_floats(x: Any, y: Any) -> Any:
    a, b = x.astype(jnp.bfloat16), y.astype(jnp.float16)
    c = jnp.asarray(np.arange(6, dtype=np.float32) / 7, jnp.bfloat16)
    return a * 3 + a, b / 2, (a.astype(jnp.float32) @ x.T), a[:, :6] + c, lax.reduce_precision(x, 8, 7)


def _random(x: Any) -> Any:
    key = jax.random.key(3)
    return jax.random.uniform(key, (4,)) + x[0, 0], jax.random.normal(key, (3,))


MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "block": (_block, (_f(2, 16, 8), _f(8, 32), _f(32), _f(32))),
    "attention": (_attention, (_f(2, 8, 8), _f(8, 24))),
    "attention_grad": (jax.grad(lambda x, w: (_attention(x, w) ** 2).sum(), (0, 1)), (_f(2, 8, 8), _f(8, 24))),
    "block_grad": (
        jax.grad(lambda *a: (_block(*a) ** 2).sum(), (0, 1, 2, 3)),
        (_f(2, 16, 8), _f(8, 32), _f(32), _f(32)),
    ),
    "loops": (_loops, (_f(3, 4), _i(3, 2))),
    "convolutions": (_convolutions, (_f(2, 4, 9, 8), _f(6, 2, 3, 2))),
    "indexing": (_indexing, (_f(5, 4), _i(5, 3))),
    "sorting": (_sorting, (_f(4, 7),)),
    "functions": (_functions, (_f(3, 5),)),
    "integers": (_integers, (_i(9, 3, 4), _i(9, 3, 4))),
    "small_floats": (_small_floats, (_f(4, 8), _f(4, 8))),
    "random": (_random, (_f(4, 4),)),
}


@cache
def lowered(name: str) -> str:
    """The text of a model."""
    function, inputs = MODELS[name]
    return xla.lowered(function, *inputs)


@cache
def wanted(name: str) -> list[Any]:
    """What JAX computes of it."""
    return xla.run(lowered(name), MODELS[name][1])
