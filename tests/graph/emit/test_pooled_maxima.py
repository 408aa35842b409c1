"""Pooling of images with NaN and -inf: which element each window chooses, and gets the gradient."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax import lax

import nki.interop.jax as nki_jax

NAN, INF = float("nan"), float("inf")

POOLS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 3, 20)),
    "2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 2, 7, 8)),
    "2d-dilated": (lambda x: F.max_pool2d(x, (3, 2), (2, 1), 1, dilation=2, ceil_mode=True), (2, 9, 8)),
    "3d": (lambda x: F.max_pool3d(x, 2, 2), (1, 2, 4, 4, 4)),
    "3d-overlapping": (lambda x: F.max_pool3d(x, (1, 2, 3), (1, 2, 1), (0, 1, 1), dilation=(1, 2, 1)), (2, 3, 6, 6)),
    "adaptive-2d": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), (2, 2, 10, 10)),
    "adaptive-3d": (lambda x: F.adaptive_max_pool3d(x, 2), (1, 2, 4, 6, 6)),
}


def _image(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Small integers, so that maxima are equal and gradients exact; much of it NaN, and the last rows -inf."""
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    x.reshape(-1)[::7] = x.reshape(-1)[1::13] = NAN
    x[..., -3:] = np.where(np.isnan(x[..., -3:]), x[..., -3:], -INF)
    return x


def _eager_and_ours(pool: Callable[..., Any], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gradients = []
    for function in (pool, torch.compile(pool, backend="neuron", fullgraph=True)):
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        y.backward((torch.arange(y.numel()).reshape(y.shape) % 16 + 1).to(y.dtype))
        gradients.append(leaf.grad)
    return gradients[0], gradients[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", POOLS)
def test_the_gradient_goes_where_eager_mode_sends_it(name: str) -> None:
    pool, shape = POOLS[name]
    torch.compiler.reset()
    wanted, found = _eager_and_ours(pool, torch.from_numpy(_image(shape)))
    assert found.tolist() == wanted.tolist()


@pytest.mark.filterwarnings("ignore")
def test_windows_of_minus_infinity_name_a_place_in_the_image() -> None:
    def places(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True)[1]

    x = torch.full((1, 1, 7, 7), -INF)
    torch.compiler.reset()
    assert torch.compile(places, backend="neuron")(x).tolist() == places(x).tolist()


@pytest.mark.parametrize(("compare", "keeps"), [(lax.max, np.greater_equal), (lax.min, np.less_equal)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_select_and_scatter_walks_through_each_window(compare: Any, keeps: Any, dtype: str) -> None:
    start = -INF if compare is lax.max else INF
    x, given = _image((2, 9, 8)), np.arange(1, 2 * 5 * 4 + 1, dtype=np.float32).reshape(2, 5, 4)
    x[:, -1, :] = start

    def gradient(x: Any, given: Any) -> Any:
        zero, sizes = np.asarray(start, x.dtype)[()], ((1, 3, 3), (1, 2, 2), ((0, 0), (1, 1), (0, 1)))
        return jax_pullback(lambda t: lax.reduce_window(t, zero, compare, *sizes), x, given)

    found = nki_jax.compile(gradient)(jnp.asarray(x, dtype), jnp.asarray(given, dtype))
    assert np.array_equal(np.asarray(found, np.float32), _walked(x, given, keeps))


def jax_pullback(function: Callable[..., Any], x: Any, given: Any) -> Any:
    return jax.vjp(function, x)[1](given)[0]


def _walked(x: Any, given: Any, keeps: Any) -> Any:
    """What the specification of StableHLO says; NaN is not kept by a comparison, and padding is no candidate."""
    result = np.zeros_like(x)
    for image, row, column in np.ndindex(*given.shape):
        chosen: tuple[int, ...] | None = None
        for down, right in product(range(3), repeat=2):
            place = (image, 2 * row + down - 1, 2 * column + right)
            if not (0 <= place[1] < x.shape[1] and place[2] < x.shape[2]):
                continue
            if chosen is None or not keeps(x[chosen], x[place]):
                chosen = place
        if chosen is not None:
            result[chosen] += given[image, row, column]
    return result
