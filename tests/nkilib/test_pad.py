"""Padding of one to three dimensions, against NumPy and PyTorch, bit for bit."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.pad import pad
from nkilib.experimental.pad.pad import MODES
from nkilib.experimental.pad.pad_reference import pad_reference


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, 100, shape).astype(dtype)


@settings(max_examples=12, deadline=None)
@given(
    some.lists(some.sampled_from([1, 2, 3, 5, 33]), max_size=2),
    some.lists(some.sampled_from([1, 4, 7, 130]), min_size=1, max_size=3),
    some.lists(some.integers(0, 3), min_size=6, max_size=6),
    some.sampled_from(MODES),
    some.sampled_from([np.float32, np.int8]),
    some.integers(1, 2),
)
def test_any_shape(batch: list[int], sizes: list[int], sides: list[int], mode: str, dtype: Any, cores: int) -> None:
    sizes = sizes if len(sizes) < 3 else [min(size, 7) for size in sizes]
    padding = []
    for place, size in enumerate(reversed(sizes)):
        most = {"reflect": size - 1, "circular": size}.get(mode, 3)
        padding += [min(side, most) for side in sides[2 * place : 2 * place + 2]]
    x = numbers(*batch, *sizes, dtype=dtype)
    made = nki.simulate(pad)[cores](x, padding, mode, 7)
    assert made.dtype == dtype and np.array_equal(made, pad_reference(x, padding, mode, 7))


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_longer_than_a_piece(mode: str) -> None:
    x = numbers(2, 9000)
    assert np.array_equal(nki.simulate(pad)(x, (5, 6), mode), pad_reference(x, (5, 6), mode))


@pytest.mark.parametrize("batch", [1, 20])
def test_integers_keep_all_of_their_bits(batch: int) -> None:
    x = numbers(batch, 3, 5, dtype=np.int32) + (1 << 30) + 1
    assert np.array_equal(nki.simulate(pad)(x, (1, 2, 2, 1), "reflect"), pad_reference(x, (1, 2, 2, 1), "reflect"))


@pytest.mark.parametrize("mode", MODES)
def test_torch_and_jax(mode: str) -> None:
    x, sides = numbers(2, 3, 4, 5), (1, 2, 3, 0)
    wanted = torch.nn.functional.pad(torch.from_numpy(x), sides, mode).numpy()
    assert np.array_equal(pad(torch.from_numpy(x), sides, mode).numpy(), wanted)
    assert np.array_equal(np.asarray(pad(jnp.asarray(x), sides, mode)), wanted)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.option", "mode is 'edge'", {"mode": "edge"}),
        ("nkilib.argument", "padding is (1,)", {"padding": (1,)}),
        ("nkilib.argument", "padding is (-1, 1)", {"padding": (-1, 1)}),
        ("nkilib.shape", "number of dimensions of x_ref is 2", {"padding": (1, 1, 1, 1, 1, 1)}),
        ("nkilib.shape", "padding of a dimension of 4 is 4", {"padding": (4, 0), "mode": "reflect"}),
        ("nkilib.shape", "padding of a dimension of 4 is 5", {"padding": (0, 5), "mode": "circular"}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit) as caught:
        pad(**{"x_ref": numbers(3, 4), "padding": (1, 1)} | change)
    assert caught.value.code == code and words in caught.value.message
