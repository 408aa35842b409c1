"""Triton's interpreter (TRITON_INTERPRET=1), with blocks as large as tiles of NKI: 65,536 elements, 128 x 512 x 128.

Products are taken in float32, because `tl.dot` of bfloat16 gives wrong numbers in the interpreter.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from benchmarks.peers.cases import EPSILON, HEAD, SCALE, SHIFT, Case
from benchmarks.peers.rival_torch import tensor

BLOCK, ROWS = 65536, 32
TALL, WIDE, DEEP = 128, 512, 128


@triton.jit
def _vadd(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def _gelu(x, out, n, scale, shift, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    t = tl.load(x + i, mask=inside).to(tl.float32) * scale + shift
    inner = 0.7978845608028654 * (t + 0.044715 * t * t * t)
    tl.store(out + i, (t * tl.sigmoid(2 * inner)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _softmax(x, out, width, BLOCK: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    place = rows[:, None] * width + columns[None, :]
    inside = (columns < width)[None, :]
    t = tl.load(x + place, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(t - tl.max(t, 1)[:, None])
    tl.store(out + place, (e / tl.sum(e, 1)[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rmsnorm(x, weight, out, width, epsilon, BLOCK: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    place = rows[:, None] * width + columns[None, :]
    inside = (columns < width)[None, :]
    t = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(t * t, 1) / width + epsilon)
    tl.store(out + place, (t * scale[:, None] * gain[None, :]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _matmul(a, b, out, height, width, depth, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    rows = tl.program_id(0) * TALL + tl.arange(0, TALL)
    columns = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inner = tl.arange(0, DEEP)
    total = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for k in range(0, depth, DEEP):
        left = tl.load(a + (k + inner)[None, :] * height + rows[:, None])
        right = tl.load(b + (k + inner)[:, None] * width + columns[None, :])
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total)
    tl.store(out + rows[:, None] * width + columns[None, :], total.to(out.dtype.element_ty))


@triton.jit
def _attention(q, k, v, out, sequence, scale, HEAD: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    rows = tl.program_id(0) * TALL + tl.arange(0, TALL)
    head = tl.arange(0, HEAD)
    queries = tl.load(q + rows[:, None] * HEAD + head[None, :])
    maximum = tl.full((TALL,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((TALL,), dtype=tl.float32)
    weighted = tl.zeros((TALL, HEAD), dtype=tl.float32)
    for first in range(0, sequence, WIDE):
        keys = first + tl.arange(0, WIDE)
        right = tl.load(k + keys[None, :] * HEAD + head[:, None])
        values = tl.load(v + keys[:, None] * HEAD + head[None, :])
        scores = tl.dot(queries.to(tl.float32), right.to(tl.float32)) * scale
        larger = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp(scores - larger[:, None])
        shrink = tl.exp(maximum - larger)
        total = total * shrink + tl.sum(weights, 1)
        weighted = weighted * shrink[:, None]
        weighted = tl.dot(weights.to(values.dtype).to(tl.float32), values.to(tl.float32), weighted)
        maximum = larger
    tl.store(out + rows[:, None] * HEAD + head[None, :], (weighted / total[:, None]).to(out.dtype.element_ty))


def _run(kernel: str, xs: list[torch.Tensor]) -> torch.Tensor:
    x, size = xs[0], xs[0].numel()
    out = torch.empty((x.shape[1], xs[1].shape[1]), dtype=x.dtype) if kernel == "matmul" else torch.empty_like(x)
    height, width = x.shape
    match kernel:
        case "vadd":
            _vadd[(triton.cdiv(size, BLOCK),)](*xs, out, size, BLOCK=BLOCK)
        case "gelu":
            _gelu[(triton.cdiv(size, BLOCK),)](x, out, size, SCALE, SHIFT, BLOCK=BLOCK)
        case "softmax":
            _softmax[(height // ROWS,)](x, out, width, BLOCK=width, ROWS=ROWS)
        case "rmsnorm":
            _rmsnorm[(height // ROWS,)](*xs, out, width, EPSILON, BLOCK=width, ROWS=ROWS)
        case "matmul":
            depth, tall, wide = height, *out.shape
            grid = (tall // TALL, wide // WIDE)
            _matmul[grid](*xs, out, tall, wide, depth, TALL=TALL, WIDE=WIDE, DEEP=DEEP)
        case _:
            _attention[(height // TALL,)](*xs, out, height, HEAD**-0.5, HEAD=HEAD, TALL=TALL, WIDE=WIDE)
    return out


def build(case: Case, arrays: list[np.ndarray], variant: str) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray]]:
    """A call, and how its result becomes a float32 array; there is one variant."""
    tensors = [tensor(array) for array in arrays]
    return lambda: _run(case.kernel, tensors), lambda result: result.float().numpy()
