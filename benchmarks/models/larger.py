"""Larger models in plain JAX for `benchmarks.graph_effects`: each makes a function, its weights and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Made = tuple[Callable[..., Any], Any, tuple[Any, ...]]
"""A function of (weights, *inputs), the weights, the inputs."""

_WIDTH, _HEADS, _GROUPS, _LAYERS, _CACHE = 512, 8, 2, 4, 256
_SIZE = _WIDTH // _HEADS


def _weights(seed: int, dtype: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    g, made = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        scale = 1.0 / np.sqrt(np.prod(shape[:-1])) if len(shape) > 1 else 0.1
        made[name] = jnp.asarray(g.standard_normal(shape) * scale + (0 if len(shape) > 1 else 1), dtype)
    return made


def _numbers(seed: int, dtype: Any, *shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


# ------------------------------------------------------------------------------------------------- transformer block


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def block(p: dict[str, Any], x: Any) -> Any:
    """Layer norm, attention with eight heads, GELU; q, k and v are three products."""
    length, width = x.shape[1:]
    y = _layer_norm(x, p["scale"], p["shift"])
    q, k, v = ((y @ p[name]).reshape(*y.shape[:2], _HEADS, -1) for name in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // _HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    seen = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(x.shape)
    x = x + seen @ p["out"]
    y = _layer_norm(x, p["scale_two"], p["shift_two"])
    return x + jax.nn.gelu(y @ p["wide"] + p["bias"]) @ p["narrow"]


def _block(dtype: Any) -> Made:
    w = _WIDTH
    shapes: dict[str, tuple[int, ...]] = {name: (w, w) for name in ("q", "k", "v", "out")}
    shapes |= {name: (w,) for name in ("scale", "shift", "scale_two", "shift_two")}
    shapes |= {"wide": (w, 4 * w), "bias": (4 * w,), "narrow": (4 * w, w)}
    return block, _weights(1, dtype, shapes), (_numbers(2, dtype, 1, 256, w),)


# ------------------------------------------------------------------------------------------------------ Llama decoder


def _rms_norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def _turned(x: Any, cosine: Any, sine: Any) -> Any:
    one, two = jnp.split(x, 2, -1)
    return x * cosine + jnp.concatenate((-two, one), -1) * sine


def _angles(positions: Any, dtype: Any) -> tuple[Any, Any]:
    steps = 1e4 ** (-np.arange(0, _SIZE, 2) / _SIZE)
    angles = positions[:, None].astype(jnp.float32) * jnp.asarray(np.tile(steps, 2), jnp.float32)
    return jnp.cos(angles)[:, None].astype(dtype), jnp.sin(angles)[:, None].astype(dtype)


def _attended(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Queries (length, heads, size), keys and values (places, groups, size)."""
    length = q.shape[0]
    q = q.reshape(length, _GROUPS, _HEADS // _GROUPS, _SIZE)
    scores = jnp.einsum("qgrd,kgd->grqk", q, k).astype(jnp.float32) / _SIZE**0.5
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), -1).astype(v.dtype)
    return jnp.einsum("grqk,kgd->qgrd", weights, v).reshape(length, _WIDTH)


def _gated(p: dict[str, Any], n: int, x: Any) -> Any:
    y = _rms_norm(x, p[f"norm_two{n}"])
    return x + (jax.nn.silu(y @ p[f"gate{n}"]) * (y @ p[f"up{n}"])) @ p[f"down{n}"]


def _projected(p: dict[str, Any], n: int, x: Any, turn: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    y = _rms_norm(x, p[f"norm{n}"])
    q, k, v = (
        (y @ p[f"{name}{n}"]).reshape(x.shape[0], count, _SIZE)
        for name, count in (("q", _HEADS), ("k", _GROUPS), ("v", _GROUPS))
    )
    return _turned(q, *turn), _turned(k, *turn), v


def prefill(p: dict[str, Any], words: Any) -> tuple[Any, Any]:
    """Logits of the last word, and keys and values of all."""
    length, x, caches = words.shape[0], p["table"][words], []
    turn = _angles(jnp.arange(length), x.dtype)
    seen = jnp.tril(jnp.ones((length, length), bool))
    for n in range(_LAYERS):
        q, k, v = _projected(p, n, x, turn)
        caches.append(jnp.stack((k, v)))
        x = x + _attended(q, k, v, seen) @ p[f"out{n}"]
        x = _gated(p, n, x)
    return _rms_norm(x[-1:], p["norm"]) @ p["head"], jnp.stack(caches)


def decode(p: dict[str, Any], word: Any, at: Any, caches: Any) -> tuple[Any, Any]:
    """Logits after one word at a place, and the caches with its keys and values."""
    x, kept = p["table"][word], []
    turn = _angles(at[None], x.dtype)
    seen = jnp.arange(_CACHE) <= at
    for n in range(_LAYERS):
        q, k, v = _projected(p, n, x, turn)
        cache = jax.lax.dynamic_update_slice(caches[n], jnp.stack((k, v)), (0, at, 0, 0))
        kept.append(cache)
        x = x + _attended(q, cache[0], cache[1], seen) @ p[f"out{n}"]
        x = _gated(p, n, x)
    return _rms_norm(x, p["norm"]) @ p["head"], jnp.stack(kept)


def _decoder(dtype: Any) -> dict[str, Any]:
    w, g, wide = _WIDTH, _GROUPS * _SIZE, 1536
    shapes: dict[str, tuple[int, ...]] = {"table": (1024, w), "norm": (w,), "head": (w, 1024)}
    for n in range(_LAYERS):
        shapes |= {f"q{n}": (w, w), f"k{n}": (w, g), f"v{n}": (w, g), f"out{n}": (w, w), f"gate{n}": (w, wide)}
        shapes |= {f"up{n}": (w, wide), f"down{n}": (wide, w), f"norm{n}": (w,), f"norm_two{n}": (w,)}
    return _weights(3, dtype, shapes)


def _prefill(dtype: Any) -> Made:
    words = np.random.default_rng(4).integers(0, 1024, 128).astype(np.int32)
    return prefill, _decoder(dtype), (jnp.asarray(words),)


def _decode(dtype: Any) -> Made:
    caches = _numbers(5, dtype, _LAYERS, 2, _CACHE, _GROUPS, _SIZE)
    return decode, _decoder(dtype), (jnp.asarray([7], jnp.int32), jnp.asarray(200, jnp.int32), caches)


# ------------------------------------------------------------------------------------------------------------ ResNet


def _conv(x: Any, kernel: Any, stride: int = 1) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def resnet(p: dict[str, Any], x: Any) -> Any:
    """ResNet-18 with folded batch norms: a stem, four stages of two blocks, mean, linear."""
    x = jax.nn.relu(_conv(x, p["stem"], 2) + p["stem_bias"])
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for n in range(8):
        stride = 2 if n in (2, 4, 6) else 1
        y = jax.nn.relu(_conv(x, p[f"one{n}"], stride) + p[f"bias_one{n}"])
        y = _conv(y, p[f"two{n}"]) + p[f"bias_two{n}"]
        x = jax.nn.relu(y + (_conv(x, p[f"short{n}"], stride) if stride == 2 else x))
    return x.mean((1, 2)) @ p["head"]


def _resnet(dtype: Any) -> Made:
    width = 16
    shapes: dict[str, tuple[int, ...]] = {"stem": (7, 7, 3, width), "stem_bias": (width,)}
    before = width
    for n in range(8):
        after = width << (n // 2)
        shapes |= {f"one{n}": (3, 3, before, after), f"two{n}": (3, 3, after, after)}
        shapes |= {f"bias_one{n}": (after,), f"bias_two{n}": (after,)}
        if n in (2, 4, 6):
            shapes[f"short{n}"] = (1, 1, before, after)
        before = after
    weights = _weights(6, dtype, shapes | {"head": (before, 10)})
    return resnet, weights, (_numbers(7, dtype, 1, 64, 64, 3),)


# --------------------------------------------------------------------------------------------------------- train step


def _loss(p: dict[str, Any], x: Any, wanted: Any) -> Any:
    for n in range(2):
        x = jax.nn.relu(x @ p[f"w{n}"] + p[f"b{n}"])
    logits = jax.nn.log_softmax((x @ p["w2"] + p["b2"]).astype(jnp.float32))
    return -(jax.nn.one_hot(wanted, 10) * logits).sum(-1).mean()


def train_step(p: Any, x: Any, wanted: Any) -> Any:
    """Loss and new parameters of an MLP after a step with momentum."""
    weights, speed = p
    loss, slope = jax.value_and_grad(_loss)(weights, x, wanted)
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slope)
    return loss, jax.tree.map(lambda w, v: w - 0.01 * v, weights, speed), speed


def _train_step(dtype: Any) -> Made:
    shapes = {"w0": (256, 512), "b0": (512,), "w1": (512, 512), "b1": (512,), "w2": (512, 10), "b2": (10,)}
    weights = _weights(8, dtype, shapes)
    wanted = np.random.default_rng(9).integers(0, 10, 64).astype(np.int32)
    speed = jax.tree.map(jnp.zeros_like, weights)
    return train_step, (weights, speed), (_numbers(10, dtype, 64, 256), jnp.asarray(wanted))


MODELS: Mapping[str, Callable[[Any], Made]] = {
    "block": partial(_block),
    "prefill": partial(_prefill),
    "decode": partial(_decode),
    "resnet": partial(_resnet),
    "train step": partial(_train_step),
}
