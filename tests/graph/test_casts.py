"""Conversions to and from floats of 8 bits, as eager PyTorch and JAX make them, wherever these could differ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from nki.core.errors import NkiError
from nki.graph.compile import compile_module
from tests.graph.emit.harness import Array

_POWERS = [2.0**exponent for exponent in (-149, -130, -128, -127, -126, -20, -10, -9, -1, 0, 1, 7, 8, 9, 15, 16, 127)]
_AROUND = [power * factor for power in _POWERS for factor in (0.999, 1, 1.2, 1.4999, 1.5, 1.75, 1.9)]
_LIMITS = [447, 449, 463.9, 464, 464.1, 480, 57344, 61439, 61440, 61441, 65504, 1e30, np.inf, np.nan, 0]
EDGES = np.array([*_AROUND, *_LIMITS, *(-number for number in (*_AROUND, *_LIMITS))], np.float64).astype(np.float32)

TORCH = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu]
JAX = [jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e8m0fnu]


def by_torch(function: Any, *inputs: torch.Tensor) -> Any:
    torch.compiler.reset()
    return torch.compile(function, backend="neuron")(*inputs)


def by_jax(function: Any, *inputs: Array) -> list[Array]:
    lowered = jax.jit(function).lower(*inputs).as_text()
    return [np.asarray(found) for found in compile_module(lowered, target="trn2").run(list(inputs))]


def codes(tensor: torch.Tensor) -> list[int]:
    """Bytes, all NaN as one."""
    return torch.where(tensor.float().isnan(), 255, tensor.view(torch.uint8)).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.bool])
def test_torch_converts_to_8_bits_as_eager(source: torch.dtype) -> None:
    x = torch.from_numpy(np.nan_to_num(EDGES, nan=3) if not source.is_floating_point else EDGES)
    x = x.clamp(-1000, 1000).to(source) if not source.is_floating_point else x.to(source)
    with np.errstate(all="ignore"):
        found = by_torch(lambda x: [x.to(kind) for kind in TORCH], x)
    for kind, made in zip(TORCH, found, strict=True):
        assert codes(made) == codes(x.to(kind)), kind


@pytest.mark.filterwarnings("ignore")
def test_torch_converts_constants_to_8_bits_as_eager() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        number = torch.tensor([1e4, -1e4, 0.0, -3.0])
        filled = [torch.full((3,), 390, dtype=kind) for kind in TORCH]
        return [*filled, *((number + 0 * x[:4]).to(kind) for kind in TORCH), *(number.to(kind) for kind in TORCH)]

    x = torch.ones(8)
    for made, wanted in zip(by_torch(function, x), function(x), strict=True):
        assert codes(made) == codes(wanted)


@pytest.mark.filterwarnings("ignore")
def test_torch_converts_from_powers_of_two_as_eager() -> None:
    kinds = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool]
    x = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    for kind, made in zip(kinds, by_torch(lambda x: [x.to(each) for each in kinds], x), strict=True):
        wanted = x.to(kind)
        assert torch.equal(made.float().nan_to_num(7e30), wanted.float().nan_to_num(7e30)), kind


@pytest.mark.filterwarnings("ignore")
def test_torch_moves_powers_of_two() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        moved = [x.reshape(4, 64).T.contiguous(), torch.cat([x, x]), x[3:200:2], x[None].expand(3, -1).contiguous()]
        return [*moved, torch.where(y > 0, x, x[0])]

    x = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    y = torch.arange(256) % 3 - 1.0
    for made, wanted in zip(by_torch(function, x, y), function(x, y), strict=True):
        assert torch.equal(made.view(torch.uint8), wanted.view(torch.uint8))


@np.errstate(all="ignore")
@pytest.mark.parametrize("source", [np.float32, jnp.bfloat16, np.float16, np.int32])
def test_jax_converts_to_8_bits_without_saturating(source: Any) -> None:
    x = np.clip(np.nan_to_num(EDGES, nan=3), -1000, 1000).astype(source) if source is np.int32 else EDGES.astype(source)
    for kind, made in zip(JAX, by_jax(lambda x: [x.astype(each) for each in JAX], x), strict=True):
        wanted = np.asarray(jnp.asarray(x).astype(kind))
        strange = np.isnan(wanted.astype(np.float32))
        assert np.array_equal(np.isnan(made.astype(np.float32)), strange), kind
        assert np.array_equal(made.view(np.uint8)[~strange], wanted.view(np.uint8)[~strange]), kind


def test_jax_computes_with_powers_of_two() -> None:
    def function(x: Any, y: Any) -> list[Any]:
        return [x * y, x / y, jnp.maximum(x, y), x < y, x == y, (x * 3).astype(jnp.float32), x.astype(jnp.bfloat16)]

    x = np.arange(120, 136, dtype=np.uint8).view(jnp.float8_e8m0fnu)
    y = np.roll(x, 3)
    with jax.disable_jit():
        expected = function(jnp.asarray(x), jnp.asarray(y))
    for made, wanted in zip(by_jax(function, x, y), expected, strict=True):
        assert made.tobytes() == np.asarray(wanted).tobytes()


def test_powers_of_two_are_not_added_up() -> None:
    x = np.arange(120, 136, dtype=np.uint8).view(jnp.float8_e8m0fnu)
    with pytest.raises(NkiError, match=r"graph\.unsupported"):
        by_jax(lambda x: jax.lax.reduce(x, jnp.asarray(1, x.dtype), jax.lax.mul, (0,)), x)
