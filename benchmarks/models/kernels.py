"""Kernels for parts of the models: as operators that a model calls, and by patterns that are found in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch

import nki
import nki.language as nl
from nki.graph import patterns
from nki.interop.torch import nki_op

_ROWS = 128
"""Rows that a tile has at most."""


@nki.jit
def rms_norm(x: Any, weight: Any, epsilon: float) -> Any:
    """``x / sqrt(mean(x * x) + epsilon) * weight`` over the last dimension, in float32."""
    width, count = x.shape[-1], prod(x.shape[:-1])
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    source, target = x.reshape((count, width)), out.reshape((count, width))
    for start in range(0, count, _ROWS):
        rows = min(_ROWS, count - start)
        data = nl.load(source[start : start + rows], dtype=nl.float32)
        gain = nl.broadcast_to(nl.load(weight.reshape((1, width)), dtype=nl.float32), (rows, width))
        mean = nl.mean(nl.multiply(data, data), axis=1, keepdims=True)
        nl.store(
            target[start : start + rows],
            nl.multiply(nl.multiply(data, nl.rsqrt(nl.add(mean, epsilon))), gain, dtype=x.dtype),
        )
    return out


@nki.jit
def attention(q: Any, k: Any, v: Any, bias: Any, scale: float) -> Any:
    """``softmax(scale * q @ k.T + bias) @ v``.

    Args:
        q: (heads, queries, size), up to 128 queries and a size of up to 128.
        k, v: (groups, keys, size), up to 128 keys; so many heads after each other share a group.
        bias: (queries, keys), float32.
    """
    heads, groups = q.shape[0], k.shape[0]
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    added = nl.load(bias)
    for head in range(heads):
        group = head * groups // heads
        scores = nl.matmul(nl.load(q[head]), nl.transpose(nl.load(k[group])))
        shifted = nl.add(nl.multiply(scores, scale, dtype=nl.float32), added)
        weights = nl.softmax(shifted, axis=1, dtype=v.dtype)
        nl.store(out[head], nl.copy(nl.matmul(weights, nl.load(v[group])), dtype=q.dtype))
    return out


@nki_op("models::rms_norm", mutates_args=())
def normed(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMS norm by a kernel."""
    return rms_norm(x, weight, epsilon)


@nki_op("models::attention", mutates_args=())
def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention of one sequence by a kernel: (1, heads, ...) and (1, groups, ...)."""
    bias = torch.where(mask, 0.0, -1e30)
    return attention(q[0].contiguous(), k[0].contiguous(), v[0].contiguous(), bias, q.shape[-1] ** -0.5)[None]


@contextmanager
def replaced() -> Iterator[None]:
    """Models that are compiled in the body have the kernel in place of every RMS norm that is found in them."""
    patterns.register_pattern("rms_norm", patterns.match_rms_norm, rms_norm)
    try:
        yield
    finally:
        patterns.unregister("rms_norm")
