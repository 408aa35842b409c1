"""Functions of one tile against SciPy and torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, same, wide, words
from tests.together import together

Reference = Callable[[np.ndarray], np.ndarray]


def by_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Reference:
    return lambda x: function(torch.from_numpy(x)).numpy()


def slope(function: Callable[[torch.Tensor], torch.Tensor]) -> Reference:
    def derivative(x: np.ndarray) -> np.ndarray:
        at = torch.from_numpy(x).requires_grad_()
        return np.asarray(torch.autograd.grad(function(at).sum(), at)[0].numpy())

    return derivative


def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


EVERYWHERE: dict[str, Reference] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "arctan": np.arctan,
    "sigmoid": special.expit,
    "relu": by_torch(torch.relu),
    "gelu": by_torch(torch.nn.functional.gelu),
    "gelu_apprx_tanh": by_torch(lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    "gelu_apprx_sigmoid": by_torch(swish),
    "gelu_dx": slope(torch.nn.functional.gelu),
    "gelu_apprx_sigmoid_dx": slope(swish),
    "silu": by_torch(torch.nn.functional.silu),
    "silu_dx": slope(torch.nn.functional.silu),
    "softplus": by_torch(torch.nn.functional.softplus),
    "mish": by_torch(torch.nn.functional.mish),
    "erf": special.erf,
    "erf_dx": lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),
    "abs": np.abs,
    "square": np.square,
    "sign": np.sign,
    "negative": np.negative,
    "reciprocal": np.reciprocal,
}
POSITIVE: dict[str, Reference] = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: x**-0.5}
EXACT = ("relu", "abs", "negative", "sign")


@together("target", TARGETS)
@pytest.mark.parametrize("name", [*EVERYWHERE, *POSITIVE])
def test_float32(name: str, target: str) -> None:
    x = normal((64, 80), scale=3)
    x = np.abs(x) + np.float32(1e-3) if name in POSITIVE else x
    wanted = (EVERYWHERE | POSITIVE)[name](wide(x))
    got = on_tiles(getattr(nl, name), x, target=target)
    assert got.dtype == np.float32
    if name in EXACT:
        same(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=3e-7)


@together("name", [*EVERYWHERE, *POSITIVE])
def test_bfloat16_in_and_out(name: str) -> None:
    x = (np.abs(normal((32, 40))) + 0.1).astype(BFLOAT16)
    got = on_tiles(getattr(nl, name), x)
    assert got.dtype == BFLOAT16
    np.testing.assert_allclose(wide(got), (EVERYWHERE | POSITIVE)[name](wide(x)), rtol=2**-8)


@together("name", [*EVERYWHERE, *POSITIVE])
def test_from_psum_to_another_dtype(name: str) -> None:
    x = np.abs(normal((32, 40))) + np.float32(0.1)
    got = on_tiles(lambda t: getattr(nl, name)(t, dtype=nl.float16), x, psum=True)
    assert got.dtype == np.float16
    np.testing.assert_allclose(wide(got), (EVERYWHERE | POSITIVE)[name](wide(x)), rtol=2**-10, atol=2**-14)


def test_arctan_of_all_numbers() -> None:
    x = np.array([[0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan, 1.5707964, 1e6]], np.float32)
    got = on_tiles(nl.arctan, x)
    np.testing.assert_allclose(got, np.arctan(wide(x)), rtol=3e-7)
    assert np.signbit(got[0, 1]) and not np.signbit(got[0, 0])


def test_zeros_change_their_sign() -> None:
    same(on_tiles(nl.negative, np.array([[0.0, -0.0, np.inf, np.nan]], np.float32)), [[-0.0, 0.0, -np.inf, np.nan]])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint32])
def test_integers(dtype: Any, target: str) -> None:
    x = words((24, 16), dtype)
    small = np.isin(x, [np.iinfo(dtype).min])
    got = on_tiles(lambda t: (nl.abs(t), nl.sign(t), nl.invert(t), nl.logical_not(t)), x, target=target)
    same(got[0][~small], np.abs(x)[~small])
    same(got[1], np.sign(x.astype(np.float64)))
    same(got[2], np.invert(x))
    same(got[3], x == 0)


def test_integers_of_32_bits_wrap() -> None:
    x = words((24, 16), np.int32)
    x[0, 0] = -(2**31)
    squared, negated, size = on_tiles(lambda t: (nl.square(t), nl.negative(t), nl.abs(t)), x)
    with np.errstate(over="ignore"):
        same(squared, x * x)
        same(negated, -x)
        same(size, np.abs(x))


def test_narrow_unsigned_integers_saturate_at_zero() -> None:
    same(on_tiles(nl.negative, np.array([[0, 3]], np.uint8)), [[0, 0]])


def test_logical_not_of_floats() -> None:
    x = np.array([[0.0, -0.0, 1.0, 0.5, np.nan, np.inf]], np.float32)
    same(on_tiles(nl.logical_not, x), np.logical_not(x))
