"""Pallas' interpreter of TPU kernels (`pltpu.InterpretParams`), jitted, with tiles of 128 x 512."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.peers.cases import EPSILON, HEAD, SCALE, SHIFT, Case
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

TALL, WIDE, DEEP = 128, 512, 128
F4 = jnp.float32


def _dot(a: Any, b: Any, left: int, right: int) -> Any:
    return jax.lax.dot_general(a, b, (((left,), (right,)), ((), ())), preferred_element_type=F4)


def _vadd(x: Any, y: Any, out: Any) -> None:
    out[...] = x[...] + y[...]


def _gelu(x: Any, out: Any) -> None:
    t = x[...].astype(F4) * SCALE + SHIFT
    out[...] = (0.5 * t * (1 + jnp.tanh(0.7978845608028654 * (t + 0.044715 * t * t * t)))).astype(out.dtype)


def _softmax(x: Any, out: Any) -> None:
    t = x[...].astype(F4)
    e = jnp.exp(t - t.max(1, keepdims=True))
    out[...] = (e / e.sum(1, keepdims=True)).astype(out.dtype)


def _rmsnorm(x: Any, weight: Any, out: Any) -> None:
    t = x[...].astype(F4)
    scale = jax.lax.rsqrt((t * t).mean(1, keepdims=True) + EPSILON)
    out[...] = (t * scale * weight[...].astype(F4)).astype(out.dtype)


def _matmul(a: Any, b: Any, out: Any, total: Any, *, steps: int) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        total[...] = jnp.zeros_like(total)

    total[...] += _dot(a[...], b[...], 0, 0)

    @pl.when(pl.program_id(2) == steps - 1)
    def _() -> None:
        out[...] = total[...].astype(out.dtype)


def _attention(q: Any, k: Any, v: Any, out: Any, weighted: Any, maximum: Any, total: Any, *, steps: int) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        weighted[...] = jnp.zeros_like(weighted)
        total[...] = jnp.zeros_like(total)
        maximum[...] = jnp.full_like(maximum, -1e30)

    scores = _dot(q[...], k[...], 1, 1) * HEAD**-0.5
    old = maximum[...]
    larger = jnp.maximum(old, scores.max(1, keepdims=True))
    weights = jnp.exp(scores - larger)
    shrink = jnp.exp(old - larger)
    total[...] = total[...] * shrink + weights.sum(1, keepdims=True)
    weighted[...] = weighted[...] * shrink + jnp.dot(weights.astype(v.dtype), v[...], preferred_element_type=F4)
    maximum[...] = larger

    @pl.when(pl.program_id(1) == steps - 1)
    def _() -> None:
        out[...] = (weighted[...] / total[...]).astype(out.dtype)


def _call(kernel: str, xs: list[Any]) -> Callable[..., Any]:
    x = xs[0]
    same = jax.ShapeDtypeStruct(x.shape, x.dtype)
    interpret = pltpu.InterpretParams()
    if kernel in ("vadd", "gelu"):
        tile = pl.BlockSpec((TALL, WIDE), lambda i, j: (i, j))
        grid = (x.shape[0] // TALL, x.shape[1] // WIDE)
        body = _vadd if kernel == "vadd" else _gelu
        return pl.pallas_call(
            body, grid=grid, in_specs=[tile] * len(xs), out_specs=tile, out_shape=same, interpret=interpret
        )
    if kernel in ("softmax", "rmsnorm"):
        rows = pl.BlockSpec((TALL, x.shape[1]), lambda i: (i, 0))
        inputs = [rows] if kernel == "softmax" else [rows, pl.BlockSpec((1, x.shape[1]), lambda i: (0, 0))]
        return pl.pallas_call(
            _softmax if kernel == "softmax" else _rmsnorm,
            grid=(x.shape[0] // TALL,), in_specs=inputs, out_specs=rows, out_shape=same, interpret=interpret,
        )  # fmt: skip
    if kernel == "matmul":
        (depth, height), width = x.shape, xs[1].shape[1]
        return pl.pallas_call(
            functools.partial(_matmul, steps=depth // DEEP),
            grid=(height // TALL, width // WIDE, depth // DEEP),
            in_specs=[
                pl.BlockSpec((DEEP, TALL), lambda i, j, k: (k, i)), pl.BlockSpec((DEEP, WIDE), lambda i, j, k: (k, j)),
            ],
            out_specs=pl.BlockSpec((TALL, WIDE), lambda i, j, k: (i, j)),
            out_shape=jax.ShapeDtypeStruct((height, width), x.dtype),
            scratch_shapes=[pltpu.VMEM((TALL, WIDE), F4)], interpret=interpret,
        )  # fmt: skip
    queries = pl.BlockSpec((TALL, HEAD), lambda i, j: (i, 0))
    keys = pl.BlockSpec((WIDE, HEAD), lambda i, j: (j, 0))
    return pl.pallas_call(
        functools.partial(_attention, steps=x.shape[0] // WIDE),
        grid=(x.shape[0] // TALL, x.shape[0] // WIDE),
        in_specs=[queries, keys, keys], out_specs=queries, out_shape=same, interpret=interpret,
        scratch_shapes=[pltpu.VMEM((TALL, HEAD), F4), pltpu.VMEM((TALL, 1), F4), pltpu.VMEM((TALL, 1), F4)],
    )  # fmt: skip


def build(case: Case, arrays: list[np.ndarray], variant: str) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray]]:
    """A call, and how its result becomes a float32 array; there is one variant."""
    xs = [jnp.asarray(array) for array in arrays]
    call = jax.jit(_call(case.kernel, xs))
    return lambda: call(*xs).block_until_ready(), lambda result: np.asarray(result).astype(np.float32)
