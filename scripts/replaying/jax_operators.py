"""Models of JAX with sizes beyond a tile and a bank of PSUM, and with operators that the other models do not have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from scripts.replaying.case import Numbers


def large(x: Any, w: Any, scale: Any) -> Any:
    """A product, rows and elements that take several tiles each: x is (300, 700), w (700, 1300)."""
    product = jax.nn.gelu(x @ w + scale)
    centered = product - product.mean(-1, keepdims=True)
    normed = centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5) * scale
    wide = jnp.tanh(normed.reshape(30, 13000) * 0.5) + 1.0
    return jax.nn.softmax(normed, -1), wide, (normed.T * 2.0).sum(0), product.max(0)


def operators(x: Any, at: Any, image: Any, taps: Any) -> Any:
    """Order, indices, whole numbers, angles, windows; x is (24, 200), at (24,) below 24, image (2, 12, 12, 8)."""
    whole = (x * 1000).astype(jnp.int32)
    return (
        jnp.sort(x, -1),
        *jax.lax.top_k(x, 5),
        jnp.argmax(x, -1),
        jnp.cumsum(x, -1),
        x[at],
        jnp.zeros_like(x).at[at].add(x),
        jnp.sin(x * 9.0) + jnp.cos(x),
        x % 0.7,
        whole // 7 + (whole >> 2) + (whole & 12) + whole % 5,
        jnp.where(x > 0, jnp.log1p(jnp.abs(x)), jnp.power(jnp.abs(x) + 0.5, 1.7)),
        jnp.concatenate((x[:, 100:], -x[:, :100]), -1),
        _convolved(image, taps),
        jax.grad(lambda each: _pooled(each).sum())(image),
        jax.random.bits(jax.random.wrap_key_data(jnp.abs(whole[0, :2]).astype(jnp.uint32)), (8, 16)),
        x.astype(jnp.bfloat16).astype(jnp.float32) + x.astype(jnp.float8_e5m2).astype(jnp.float32),
    )


def _convolved(image: Any, taps: Any) -> Any:
    """Each channel with taps of its own: (3, 3, 1, 8)."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        image, taps, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=image.shape[-1]
    )


def _pooled(image: Any) -> Any:
    return jax.lax.reduce_window(image, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A function and its inputs."""
    numbers = Numbers(name)
    if name == "large":
        shapes = ((300, 700), 1.0), ((700, 1300), 0.05), ((1300,), 0.5)
        return large, tuple(jnp.asarray(numbers.floats(shape, scale)) for shape, scale in shapes)
    x, at = numbers.floats((24, 200)), numbers.below(24, (24,))
    return operators, tuple(map(jnp.asarray, (x, at, numbers.floats((2, 12, 12, 8)), numbers.floats((3, 3, 1, 8)))))
