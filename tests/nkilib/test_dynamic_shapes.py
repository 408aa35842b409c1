"""Sums of as many rows as are asked for when the kernel runs."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.dynamic_shapes import dynamic_elementwise_add
from nkilib.experimental.dynamic_shapes.dynamic_elementwise_add_reference import dynamic_elementwise_add_reference


def call(tiles: int = 2, columns: int = 5, wanted: int = 1, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(columns)
    return {
        "input_a": rng.standard_normal((128 * tiles, columns)).astype(dtype),
        "input_b": rng.standard_normal((128 * tiles, columns)).astype(dtype),
        "num_m_tiles": np.array([[wanted]], np.int32),
    }


def close(made: Any, given: dict[str, Any]) -> None:
    rows = 128 * int(given["num_m_tiles"].item())
    wanted = dynamic_elementwise_add_reference(**given)
    assert made.shape == wanted.shape and np.isnan(wanted[rows:]).all()
    assert np.array_equal(np.asarray(made)[:rows], wanted[:rows].astype(given["input_a"].dtype))


@settings(max_examples=6, deadline=None)
@given(
    some.sampled_from([(1, 0), (1, 1), (3, 2), (3, 3)]),
    some.sampled_from([1, 127, 513, 4100]),
    some.booleans(),
    some.integers(1, 2),
)
def test_any_columns(tiles: tuple[int, int], columns: int, short: bool, cores: int) -> None:
    given = call(tiles[0], columns, tiles[1], bfloat16 if short else np.float32)
    close(nki.simulate(dynamic_elementwise_add)[cores](**given), given)


def test_one_compiled_kernel_serves_every_number_of_tiles() -> None:
    for wanted in (3, 0, 1):
        given = call(3, 7, wanted)
        close(dynamic_elementwise_add[2](**given), given)
    compiled = dynamic_elementwise_add[2](**call(3, 7, 2))
    assert np.array_equal(compiled[:256], call(3, 7)["input_a"][:256] + call(3, 7)["input_b"][:256])


def test_torch_and_jax() -> None:
    given = call()
    close(dynamic_elementwise_add(*map(torch.from_numpy, given.values())).numpy(), given)
    close(jax.jit(dynamic_elementwise_add)(*given.values()), given)


def test_more_tiles_than_there_are_is_an_error() -> None:
    with pytest.raises(nki.errors.NkiError, match="2"):
        nki.simulate(dynamic_elementwise_add)(**call(2, 5, 3))


REFUSED = [
    ("nkilib.shape", "input_a has 1 dimensions", {"input_a": np.ones(128, np.float32)}),
    ("nkilib.shape", "dimension 1 of input_b is 6, not H=5", {"input_b": np.ones((256, 6), np.float32)}),
    ("nkilib.shape", "num_m_tiles has 1 dimensions", {"num_m_tiles": np.ones(1, np.int32)}),
    ("nkilib.shape", "M is 130", dict.fromkeys(("input_a", "input_b"), np.ones((130, 5), np.float32))),
    ("nkilib.dtype", "num_m_tiles is float32", {"num_m_tiles": np.ones((1, 1), np.float32)}),
    ("nkilib.dtype", "input_a is int32", {"input_a": np.ones((256, 5), np.int32)}),
    ("nkilib.dtype", "dtypes differ", {"input_b": np.ones((256, 5), bfloat16)}),
]


@pytest.mark.parametrize(("code", "words", "change"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(dynamic_elementwise_add)(**call() | change)
    assert caught.value.code == code
