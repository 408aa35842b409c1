"""Quotients that become integers, remainders and shifts: as eager PyTorch and JAX, the sign of zero included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

from nki.graph.compile import compile_module
from tests.graph.emit.harness import Array

_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.3, 3.0, -3.0, 14.999999, 26.999999, 1e10, -1e10, np.inf, -np.inf, np.nan,
            0.5, 5.5, 1 / 3, 6.0, 0.2]  # fmt: skip


def operands() -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    a, b = (grid.ravel() for grid in np.meshgrid(_SPECIAL, _SPECIAL))
    left = np.concatenate([a, random.normal(0, 50, 300), random.integers(-500, 500, 300)])
    right = np.concatenate([b, random.normal(0, 3, 300), random.integers(1, 40, 300) * 0.1])
    return left.astype(np.float32), right.astype(np.float32)


def same(mine: Any, theirs: Any) -> None:
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    assert mine.dtype == theirs.dtype
    mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
    equal = ((mine == theirs) & (np.signbit(mine) == np.signbit(theirs))) | (np.isnan(mine) & np.isnan(theirs))
    assert np.all(equal), (np.argwhere(~equal)[:3], mine[~equal][:3], theirs[~equal][:3])


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    torch.compiler.reset()
    return torch.compile(function, backend="neuron")(*inputs)


def floats(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        "floor": a // b,
        "trunc": torch.div(a, b, rounding_mode="trunc"),
        "remainder": a % b,
        "rest": torch.fmod(a, b),
        "of a quotient": torch.floor(a / b),
        "bucket": (a / b).clamp(-6e4, 6e4).nan_to_num(0.0).int(),
        "by a number": a // 0.1,
        "trunc by a number": torch.div(a, 3.0, rounding_mode="trunc"),
        "up": torch.ceil(a / -0.3),
        "by zero": a // 0.0,
        "equal": a / 0.3 == 5.0,
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_torch_rounds_quotients_as_eager(dtype: torch.dtype) -> None:
    a, b = (torch.from_numpy(array).to(dtype) for array in operands())
    found = compiled(floats, a, b)
    for name, wanted in floats(a, b).items():
        same(found[name].float(), wanted.float())


@pytest.mark.filterwarnings("ignore")
def test_floor_divisions_are_those_of_python() -> None:
    a, b = operands()
    chosen = np.isfinite(a) & np.isfinite(b) & (b != 0) & (abs(a) < 1e4)
    x, y = torch.from_numpy(a[chosen]), torch.from_numpy(b[chosen])
    same(
        compiled(lambda x, y: x // y, x, y),
        np.array([p // q for p, q in zip(x.tolist(), y.tolist(), strict=True)], np.float32),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dtype",
    [
        torch.int8,
        torch.int32,
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in (torch.uint8, torch.int16, torch.int64)),
    ],
)
def test_torch_divides_integers_as_eager(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    low, high = max(info.min, -(2**31)), min(info.max, 2**31 - 1)
    numbers = [low, high, 0, 1, 2, 3, 5, 7, high // 2, high // 2 + 1, high - 3, *((-1, -2, -7) if low else (100, 101))]
    left, right = (grid.ravel() for grid in np.meshgrid(numbers, [n for n in numbers if n != 0]))
    kept = (left != low) | (right != -1)  # beyond the range
    x, y = torch.tensor(left[kept]).to(dtype), torch.tensor(right[kept]).to(dtype)

    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x // y,
            torch.div(x, y, rounding_mode="trunc"),
            x % y,
            torch.fmod(x, y),
            x // 3,
            x % 3,
            7 // y,
            x // 2.5,
        ]

    for mine, theirs in zip(compiled(function, x, y), function(x, y), strict=True):
        same(mine, theirs)


@pytest.mark.parametrize("function", [jnp.floor_divide, lax.rem, jnp.remainder, lambda a, b: jnp.floor(a / b)])
def test_jax_rounds_quotients(function: Callable[..., Any]) -> None:
    a, b = operands()
    (found,) = compile_module(jax.jit(function).lower(a, b).as_text(), target="trn2").run([a, b])
    with jax.disable_jit():
        same(found, function(jnp.asarray(a), jnp.asarray(b)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint8,
        torch.int32,
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in (torch.int8, torch.int16, torch.int64)),
    ],
)
def test_torch_shifts_as_eager(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    low, high = max(info.min, -(2**31)), min(info.max, 2**31 - 1)
    x = torch.tensor([low, high, 0, 1, 5, high // 2, high // 2 + 1, high - 3], dtype=dtype)
    counts = torch.tensor([0, 1, 2, 4, info.bits - 1, info.bits, 31, 100], dtype=dtype)

    def function(x: torch.Tensor, counts: torch.Tensor) -> list[torch.Tensor]:
        by_numbers = [x >> count for count in (0, 1, 4, info.bits - 1, info.bits, 40)]
        return [x[:, None] >> counts, torch.bitwise_right_shift(100, counts), *by_numbers, torch.bitwise_xor(5, x)]

    for mine, theirs in zip(compiled(function, x, counts), function(x, counts), strict=True):
        same(mine, theirs)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int8, np.int32])
def test_jax_shifts_beyond_the_width(dtype: Any) -> None:
    info = np.iinfo(dtype)
    numbers = np.array([info.min, info.max, 0, 1, 5, info.max // 2 + 1], object).astype(dtype)
    x, counts = np.meshgrid(numbers, np.array([0, 1, info.bits - 1, info.bits, 33, info.max], object).astype(dtype))
    x, counts = np.ascontiguousarray(x), np.ascontiguousarray(counts)

    def function(x: Any, y: Any) -> list[Any]:
        return [lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y), x >> 1]

    found = compile_module(jax.jit(function).lower(x, counts).as_text(), target="trn2").run([x, counts])
    for mine, theirs in zip(found, function(jnp.asarray(x), jnp.asarray(counts)), strict=True):
        same(mine, theirs)
