"""Every operation rounds to its dtype, whichever kernel computes it and whatever follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax import lax

from nki.graph.compile import compile_module
from tests.graph.emit.harness import Array

BF16, F16, F32 = jnp.bfloat16, jnp.float16, jnp.float32
E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2


def numbers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 3) -> Array:
    return np.random.default_rng(seed).normal(0, 40, shape).astype(np.float32).astype(dtype)


def compared(function: Callable[..., Any], *inputs: Array) -> None:
    lowered = jax.jit(function, keep_unused=True).lower(*inputs).as_text()
    with jax.disable_jit():
        expected = np.asarray(function(*map(jnp.asarray, inputs)))
    (found,) = compile_module(lowered, target="trn2").run(list(inputs))
    found = np.asarray(found).reshape(expected.shape)
    assert found.dtype == expected.dtype
    same = (found == expected) | ((found != found) & (expected != expected))
    assert np.all(same), (found[~same][:4], expected[~same][:4])


PAIRS: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda x: (x / 2).astype(E4M3).astype(F32) * 2,
    "then a function": lambda x: jnp.abs((x * 3 + 1).astype(BF16).astype(F32) * 0.5),
    "overflow": lambda x: (x * 1e4).astype(F16).astype(F32),
    "clamped": lambda x: jnp.clip(x, -7.3, 11.7).astype(E5M2).astype(F32),
    "below a limit that is rounded": lambda x: jnp.minimum(x.astype(BF16).astype(F32), 0.1).astype(BF16).astype(F32),
    "columns": lambda x: (x * x[:, :1]).astype(BF16).astype(F32) + x[:, 1:2],
    "reduced": lambda x: (x * 1.7).astype(E5M2).astype(F32).max(1),
    "summed": lambda x: jnp.square(x * 0.125).astype(BF16).astype(F32).sum(1).astype(BF16),
    "precision": lambda x: lax.reduce_precision(x * 1.1, 8, 7) - lax.reduce_precision(x + 3, 5, 10),
    "few bits": lambda x: lax.reduce_precision(x * 0.3, 4, 3) * 2,
    "joined": lambda x: jnp.concatenate([(x[:, 8:] * -1.1).astype(BF16), (x[:, :8] + 2).astype(BF16)], 1).astype(F32),
    "compared": lambda x: (x * 1.01).astype(BF16).astype(F32) > (x * 1.0).astype(BF16).astype(F32),
    "positions": lambda x: x + jnp.arange(600, dtype=F32)[516:532].astype(BF16).astype(F32),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_rounding_that_is_written_happens(name: str) -> None:
    compared(PAIRS[name], numbers((5, 16)))


NARROW: dict[str, Callable[..., Any]] = {
    "two steps": lambda x, y: x * 1.7 + 3,
    "a step and a tensor": lambda x, y: (x - 1.3) * y,
    "reversed": lambda x, y: y - (3 - x),
    "exact steps": lambda x, y: jnp.maximum(-x, 1.5) * y,
    "a step before a function": lambda x, y: jnp.sqrt(jnp.abs(x * 1.7)),
    "divided": lambda x, y: jnp.floor(x / 4) * 0.5 + y,
    "a column": lambda x, y: x * y[:, :1] + x[:, :1],
    "compared": lambda x, y: x * 1.01 > x + 0.3,
    "largest": lambda x, y: (x * 1.7 + y).max(1) * 1.3,
    "chosen": lambda x, y: jnp.where(x > 0, x * 1.7, y) + 1,
    "product": lambda x, y: (x @ y.T) * 1.7,
    "product with a term": lambda x, y: x @ y.T + x[:, :5],
    "product in float32": lambda x, y: (x @ y.T).astype(F32) * 0.3,
    "largest of a product": lambda x, y: (x @ y.T).astype(F32) - (x @ y.T).max(1, keepdims=True).astype(F32) * 0.3,
}


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_operations_round_one_by_one(name: str, dtype: Any) -> None:
    x, y = (np.round(numbers((5, 16), seed=seed) / 8).astype(dtype) for seed in (3, 4))
    compared(NARROW[name], x, y)


def test_a_convolution_rounds_before_what_follows() -> None:
    def function(x: Any, w: Any) -> Any:
        return lax.conv(x, w, (1, 1), "SAME").astype(F32) * 0.3

    x, w = np.round(numbers((1, 3, 8, 8)) / 8), np.round(numbers((4, 3, 3, 3), seed=5) / 8)
    compared(function, x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("part", ["weights", "keys"])
def test_attention_with_a_rounding_to_8_bits_keeps_it(part: str) -> None:
    def narrow(x: Any) -> Any:
        return x.astype(E4M3).astype(F32)

    def attention(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(q @ (narrow(k) if part == "keys" else k).T, -1)
        return (narrow(weights) if part == "weights" else weights) @ v

    q, k, v = (numbers((256, 16), seed=seed) / 80 for seed in range(3))
    lowered = jax.jit(attention).lower(q, k, v).as_text()
    (found,) = compile_module(lowered, target="trn2").run([q, k, v])
    with jax.disable_jit():
        expected = np.asarray(attention(q, k, v))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.filterwarnings("ignore")
def test_torch_compiled_rounds_as_eager() -> None:
    def function(x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fake = (x / 2).to(torch.float8_e4m3fn).float() * 2
        pairs = (x * 3).bfloat16().float(), x.relu().to(torch.float8_e5m2).float()
        return fake, *pairs, h * 1.7 + 3, (h - 1.3) * h, h / 1.7, h * torch.sum(x), 1.7 / h

    x = torch.from_numpy(numbers((4, 8)))
    torch.compiler.reset()
    found = torch.compile(function, backend="neuron")(x, x.bfloat16())
    for mine, theirs in zip(found, function(x, x.bfloat16()), strict=True):
        assert torch.equal(mine, theirs)
