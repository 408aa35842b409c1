"""The largest elements of rows by GpSimd, against NumPy: values, and indices that name them once each."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
import nki.language as nl
from nkilib.core.topk.rotational_topk_reference import topk_reference
from nkilib.errors import KernelLimit
from nkilib.experimental.topk import create_gpsimd_topk_config, gpsimd_topk


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(bfloat16)


def check(x: Any, k: int, ordered: bool = True, cores: int = 1) -> None:
    config = create_gpsimd_topk_config(x.shape, nl.bfloat16, k, ordered)
    values, indices = nki.simulate(gpsimd_topk)[cores](x, config)
    assert values.dtype == bfloat16 and indices.dtype == np.uint32 and values.shape == (len(x), k)
    assert np.array_equal(np.take_along_axis(x, indices.astype(int), -1), values)
    assert all(len(set(row)) == k for row in indices.tolist())
    found = values.astype(np.float64) if ordered else -np.sort(-values.astype(np.float64), -1)
    assert np.array_equal(found, topk_reference(x, k)[0].astype(np.float64))


@settings(max_examples=8, deadline=None)
@given(
    some.sampled_from([1, 7, 8, 9, 129]),
    some.sampled_from([8, 15, 16, 100, 129, 513]),
    some.integers(1, 70),
    some.booleans(),
    some.sampled_from([1, 2]),
)
def test_any_rows(rows: int, columns: int, k: int, ordered: bool, cores: int) -> None:
    check(normal(rows, columns), min(k, columns), ordered, cores)


def test_masked_and_equal_elements() -> None:
    x = np.round(2 * normal(3, 300).astype(np.float32)).astype(bfloat16)
    check(x, 100)
    x[:, 20:] = -np.inf
    check(x, 64)


def test_torch_and_jax() -> None:
    x, config = normal(2, 70), create_gpsimd_topk_config((2, 1, 70), nl.bfloat16, 9)
    wanted = topk_reference(x, 9)[0]
    of_torch = gpsimd_topk(torch.from_numpy(x.astype(np.float32)).bfloat16(), config)[0]
    assert np.array_equal(of_torch.float().numpy(), wanted.astype(np.float32))
    assert np.array_equal(np.asarray(gpsimd_topk(jnp.asarray(x), config)[0]), wanted)


@pytest.mark.parametrize(
    ("code", "words", "shape", "dtype", "k"),
    [
        ("nkilib.shape", "V is 7", (2, 7), nl.bfloat16, 1),
        ("nkilib.shape", "V is 65536", (2, 65536), nl.bfloat16, 1),
        ("nkilib.shape", "k is 20", (2, 19), nl.bfloat16, 20),
        ("nkilib.option", "inp_dtype is", (2, 19), nl.float32, 2),
        ("nkilib.argument", "inp_shape is [9]", (9,), nl.bfloat16, 2),
    ],
)
def test_what_is_refused(code: str, words: str, shape: tuple[int, ...], dtype: Any, k: int) -> None:
    with pytest.raises(KernelLimit) as caught:
        create_gpsimd_topk_config(shape, dtype, k)
    assert caught.value.code == code and words in caught.value.message


def test_a_config_of_another_shape_is_refused() -> None:
    with pytest.raises(KernelLimit, match="dimension 1 of inp is 60, not 70"):
        gpsimd_topk(normal(2, 60), create_gpsimd_topk_config((2, 70), nl.bfloat16, 3))
