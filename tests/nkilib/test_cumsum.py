"""Cumulative sums of every dtype, of rows of any number and length, against float64."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
from nkilib.core.cumsum import cumsum
from nkilib.core.cumsum.cumsum_reference import cumsum_reference
from nkilib.errors import KernelLimit

SIZES = some.sampled_from([1, 2, 7, 127, 129, 513])


def whole(*shape: int, dtype: Any, largest: int = 3) -> Any:
    """Small integers, whose sums are exact in float32."""
    return np.random.default_rng(sum(shape)).integers(-largest, largest + 1, shape).astype(dtype)


@settings(max_examples=10, deadline=None)
@given(SIZES, SIZES, some.sampled_from([np.float32, bfloat16, np.int32, np.int8, np.uint16]), some.sampled_from([1, 2]))
def test_any_number_of_rows_of_any_length(rows: int, columns: int, dtype: Any, cores: int) -> None:
    x = whole(rows, columns, dtype=dtype)
    if np.dtype(dtype).kind == "u":
        x = whole(rows, columns, dtype=np.int32).clip(0).astype(dtype)
    assert np.array_equal(nki.simulate(cumsum)[cores](x), cumsum_reference(x))


@pytest.mark.parametrize("shape", [(1, 4096), (130, 4100), (3, 2, 5000), (2, 16384)])
def test_sums_go_on_from_piece_to_piece_without_rounding(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 1, bfloat16)  # a sum of bfloat16 would end at 256
    assert np.array_equal(cumsum(x, axis=len(shape) - 1), np.cumsum(x.astype(np.float64), -1).astype(bfloat16))


def test_integers_are_exact_to_the_24th_bit_and_saturate() -> None:
    exact = np.full((129, 2100), 7000, np.int32)
    assert np.array_equal(cumsum(exact), np.cumsum(exact, -1)) and exact.sum(-1).max() < 2**24
    small = cumsum(np.full((1, 9), 100, np.int8))
    assert small.tolist() == [[100] + [127] * 8] and np.array_equal(
        small, cumsum_reference(np.full((1, 9), 100, np.int8))
    )


def test_torch_and_jax() -> None:
    x = np.random.default_rng(0).standard_normal((3, 70)).astype(np.float32)
    wanted = torch.cumsum(torch.from_numpy(x), -1)
    made = cumsum(torch.from_numpy(x))
    assert torch.allclose(made, wanted, atol=1e-5) and np.array_equal(np.asarray(cumsum(jnp.asarray(x))), made.numpy())


@pytest.mark.parametrize(
    ("code", "words", "x", "axis"),
    [
        ("nkilib.option", "axis is 0", np.ones((3, 4), np.float32), 0),
        ("nkilib.option", "axis is 2", np.ones((3, 4), np.float32), 2),
        ("nkilib.dtype", "x is float8_e5m2", np.ones((3, 4), "float8_e5m2"), -1),
    ],
)
def test_what_is_refused(code: str, words: str, x: Any, axis: int) -> None:
    with pytest.raises(KernelLimit) as caught:
        cumsum(x, axis)
    assert caught.value.code == code and words in caught.value.message
