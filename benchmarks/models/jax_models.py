"""Models in plain JAX by name: each makes a function and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _weights(generator: np.random.Generator, dtype: Any, **shapes: tuple[int, ...]) -> dict[str, Any]:
    made = {}
    for name, shape in shapes.items():
        scale = 1.0 / np.sqrt(shape[0]) if len(shape) > 1 else 0.1
        made[name] = jnp.asarray(generator.standard_normal(shape) * scale, dtype)
    return made


def mlp(p: dict[str, Any], x: Any) -> Any:
    """Two layers with ReLU."""
    return jax.nn.relu(x @ p["one"] + p["shift"]) @ p["two"]


def _mlp(dtype: Any) -> Made:
    g = np.random.default_rng(1)
    weights = _weights(g, dtype, one=(64, 128), shift=(128,), two=(128, 10))
    return mlp, (weights, jnp.asarray(g.standard_normal((32, 64)), dtype))


def cnn(p: dict[str, Any], x: Any) -> Any:
    """Two convolutions with max pooling, then a linear layer."""
    for kernel in (p["first"], p["second"]):
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(x.shape[0], -1) @ p["head"]


def _cnn(dtype: Any) -> Made:
    g = np.random.default_rng(2)
    weights = _weights(g, dtype, first=(3, 3, 1, 8), second=(3, 3, 8, 16), head=(16 * 49, 10))
    return cnn, (weights, jnp.asarray(g.standard_normal((2, 28, 28, 1)), dtype))


def _norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def block(p: dict[str, Any], x: Any) -> Any:
    """RMS norm, causal attention with four heads, GELU."""
    batch, length, width = x.shape
    q, k, v = jnp.split(_norm(x, p["scale"]) @ p["mixed"], 3, -1)
    q, k, v = (y.reshape(batch, length, 4, width // 4) for y in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // 4)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    seen = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(batch, length, width)
    x = x + seen @ p["out"]
    return x + jax.nn.gelu(_norm(x, p["scale"]) @ p["wide"]) @ p["narrow"]


_BLOCK = {"scale": (64,), "mixed": (64, 192), "out": (64, 64), "wide": (64, 256), "narrow": (256, 64)}


def _block(dtype: Any) -> Made:
    g = np.random.default_rng(3)
    return block, (_weights(g, dtype, **_BLOCK), jnp.asarray(g.standard_normal((2, 32, 64)), dtype))


def recurrent(p: dict[str, Any], x: Any) -> Any:
    """A gated recurrence in a loop of the device: `lax.scan`."""

    def step(hidden: Any, row: Any) -> tuple[Any, Any]:
        gate = jax.nn.sigmoid(row @ p["gate"] + hidden @ p["state"])
        hidden = gate * hidden + (1 - gate) * jnp.tanh(row @ p["into"])
        return hidden, hidden

    return jax.lax.scan(step, jnp.zeros((x.shape[1], 64), x.dtype), x)[1]


def _recurrent(dtype: Any) -> Made:
    g = np.random.default_rng(4)
    weights = _weights(g, dtype, gate=(32, 64), state=(64, 64), into=(32, 64))
    return recurrent, (weights, jnp.asarray(g.standard_normal((8, 4, 32)), dtype))


def _block_gradient(dtype: Any) -> Made:
    function, inputs = _block(dtype)
    return jax.grad(lambda p, x: (function(p, x).astype(jnp.float32) ** 2).mean()), inputs


MODELS: Mapping[str, Callable[..., Made]] = {
    "mlp": partial(_mlp),
    "cnn": partial(_cnn),
    "block": partial(_block),
    "block, gradient": partial(_block_gradient),
    "recurrent (scan)": partial(_recurrent),
}
