"""Functions of PyTorch over the whole range of their arguments, in ulps of float64; orders with NaN, as eager mode."""

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
from tests.graph.emit.harness import ulps

INF, NAN = np.inf, np.nan
_NEAR_ONE = 10.0 ** np.linspace(-7, -0.01, 20)
_GRID = np.concatenate([10.0 ** np.linspace(-38, 38.5, 60), np.linspace(0.1, 20, 60), np.linspace(85, 90, 20)])
_SIZES = [*_GRID, *(1 + _NEAR_ONE), *(1 - _NEAR_ONE), 2e19, 88.72, 0.0, INF]
POINTS = np.array([*_SIZES, *(-size for size in _SIZES), NAN], np.float32)
NAMES = ["sinh", "cosh", "asinh", "acosh", "atanh", "tanh", "asin", "atan", "erfinv", "exp2", "expm1", "log1p",
         "sigmoid", "tan", "rsqrt", "sign"]  # fmt: skip


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    torch.compiler.reset()
    return torch.compile(function, backend="neuron")(*inputs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("dtype", "limit"),
    [(torch.float32, 5.0), (torch.bfloat16, 1.0), pytest.param(torch.float16, 1.0, marks=pytest.mark.slow)],
)
def test_functions_over_their_whole_range(dtype: torch.dtype, limit: float) -> None:
    x = torch.from_numpy(POINTS).to(dtype)
    found = compiled(lambda x: {name: getattr(torch, name)(x) for name in NAMES}, x)
    for name in NAMES:
        wanted = getattr(torch, name)(x.double()).to(dtype)
        stored = jnp.bfloat16 if dtype == torch.bfloat16 else str(dtype).removeprefix("torch.")
        mine, theirs = (tensor.double().numpy().astype(stored) for tensor in (found[name], wanted))
        error = ulps(mine, theirs)
        assert error <= limit, (name, error)


@pytest.mark.filterwarnings("ignore")
def test_hypotenuses_and_signs() -> None:
    sides = np.array([0, -0.0, 3, -4, 1e-30, 1e-40, 2e-45, 3e38, 1e20, INF, -INF, NAN], np.float32)
    a, b = (torch.from_numpy(grid.ravel()) for grid in np.meshgrid(sides, sides))
    lengths, signs = compiled(lambda a, b: (torch.hypot(a, b), torch.copysign(a, b)), a, b)
    assert ulps(lengths.numpy(), torch.hypot(a.double(), b.double()).float().numpy()) <= 2
    assert signs.view(torch.int32).tolist() == torch.copysign(a, b).view(torch.int32).tolist()


@pytest.mark.filterwarnings("ignore")
def test_tails_and_what_is_close_to_zero() -> None:
    """erfc down to the smallest normal numbers, also from JAX; logit where it is 0."""
    x = np.concatenate([np.linspace(-4, 9.1, 400), [0.0, 11.5, 40.0, INF, -INF, NAN]]).astype(np.float32)
    p = np.concatenate([0.5 + np.linspace(-1e-3, 1e-3, 40), np.linspace(0.001, 0.999, 60), [0, 1, NAN]]).astype(
        np.float32
    )
    tails, odds = compiled(lambda x, p: (torch.erfc(x), torch.logit(p)), torch.from_numpy(x), torch.from_numpy(p))
    wanted = torch.erfc(torch.from_numpy(x).double()).float().numpy()
    assert ulps(tails.numpy(), wanted) <= 8
    assert ulps(odds.numpy(), torch.logit(torch.from_numpy(p).double()).float().numpy()) <= 4
    text = jax.jit(jax.scipy.special.erfc).lower(x).as_text()
    assert ulps(np.asarray(compile_module(text, target="trn2").run([x])[0]), wanted) <= 8
    kept = compiled(lambda p: torch.logit(p, 0.01), torch.from_numpy(p)).numpy()
    assert ulps(kept, torch.logit(torch.from_numpy(p).double(), 0.01).float().numpy()) <= 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("divisor", [1e-39, -1e-45, 2.9e-39, 3.3e38, -2.1e38, INF, -0.0])
def test_divisors_whose_reciprocal_is_no_normal_number(divisor: float) -> None:
    a = torch.tensor([1e-39, -3e-42, 0.0, -0.0, 1.0, 1e-20, 1e38, 3.3e38, INF, NAN])
    quotients, floors = compiled(lambda a, b: (a / divisor, torch.floor(a / b)), a, torch.full_like(a, divisor))
    assert (
        ulps(
            quotients.numpy(),
            (a.double() / np.float32(divisor).item()).float().numpy() if divisor else (a / divisor).numpy(),
        )
        <= 1
    )
    assert floors.tolist() == pytest.approx(torch.floor(a / np.float32(divisor).item()).tolist(), nan_ok=True)


ROWS = [[1.0, NAN, -2.0, 5.0, INF, -INF, 0.5, -0.25, NAN, 1.0], [INF, INF, -INF, -INF, 2, 2, -1, -1, 3, 3], [NAN] * 10]


def orders(x: torch.Tensor) -> list[Any]:
    found = [*x.sort(dim=1, stable=True), *x.sort(dim=1, descending=True, stable=True), x.sort(0)[0], x.msort()]
    found += [x.topk(3, 1)[0], x.topk(4, 1, largest=False)[0], x.kthvalue(3, 1)[0], x.argsort(dim=1, stable=True)]
    found += [*x.max(1), *x.min(1), x.argmax(1), x.argmin(1), x.argmax(), *x.cummax(1), *x.cummin(1), *x.median(1)]
    return [*found, torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0, 3.0]).to(x.dtype)), x.nanmedian(1)[0]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (torch.float32, torch.float16))]
)
def test_orders_with_nan_are_those_of_eager_mode(dtype: torch.dtype) -> None:
    x = torch.tensor(ROWS).to(dtype)
    for number, (mine, theirs) in enumerate(zip(compiled(orders, x), orders(x), strict=True)):
        assert torch.equal(mine.double().nan_to_num(7e300), theirs.double().nan_to_num(7e300)), number


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dtype",
    [torch.int32, torch.uint8, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (torch.int64, torch.int8))],
)
def test_orders_of_integers(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([[1, 0, min(info.max, 2**31 - 1), max(info.min, -(2**31)), 3, 1, 0, 7]]).to(dtype)

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        found = [*x.sort(dim=1, stable=True), *x.sort(dim=1, descending=True, stable=True), x.topk(3, 1)[0]]
        return [*found, *x.max(1), x.argmin(1), *x.cummax(1), *x.cummin(1), x.median(1)[0]]

    for mine, theirs in zip(compiled(function, x), function(x), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16])
def test_top_k_is_in_total_order(dtype: Any) -> None:
    zeros = [0.0, -0.0, 0.0, -0.0, -0.0, 0.0, NAN, -NAN, INF, -INF]
    x = np.array([*ROWS, zeros], np.float32).astype(dtype)
    for function in (lambda x: lax.top_k(x, 4), lambda x: lax.top_k(x, 10), lambda x: lax.sort(x, dimension=1)):
        found = compile_module(jax.jit(function).lower(x).as_text(), target="trn2").run([x])
        with jax.disable_jit():
            expected = jax.tree_util.tree_leaves(function(jnp.asarray(x)))
        for mine, theirs in zip(found, expected, strict=True):
            assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
