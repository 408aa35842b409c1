"""Indices of what is not zero in columns of any number and length, searched whole and in chunks, against NumPy."""

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
from nkilib.core.subkernels import find_nonzero_indices
from nkilib.core.subkernels.find_nonzero_indices_reference import find_nonzero_indices_reference
from nkilib.errors import KernelLimit


def sparse(length: int, columns: int, dtype: Any = np.float32, share: float = 0.3) -> Any:
    rng = np.random.default_rng(length + columns)
    return ((rng.random((length, columns)) < share) * rng.integers(-4, 5, (length, columns))).astype(dtype)


def check(x: Any, cores: int = 1, **options: Any) -> None:
    made = nki.simulate(find_nonzero_indices)[cores](x, **options)
    for found, wanted in zip(made, find_nonzero_indices_reference(x, **options), strict=True):
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


@settings(max_examples=6, deadline=None)
@given(
    some.sampled_from([1, 3, 127, 129, 513]),
    some.sampled_from([1, 7, 9, 127, 129]),
    some.sampled_from([np.float32, bfloat16, np.int32]),
    some.sampled_from([nl.int32, nl.int16]),
    some.sampled_from([1, 2]),
)
def test_columns_of_any_number_and_length(length: int, columns: int, dtype: Any, index: Any, cores: int) -> None:
    check(sparse(length, columns, dtype), cores, index_dtype=index)


@pytest.mark.parametrize("chunk", [1, 100, 128, 299])
def test_chunks_follow_each_other(chunk: int) -> None:
    length = 300 if chunk > 1 else 5
    check(sparse(length, 10), 2, chunk_size=chunk)
    check(np.ones((length, 3), np.float32), chunk_size=chunk)
    check(np.zeros((length, 3), np.float32), chunk_size=chunk)


def test_some_of_the_columns() -> None:
    check(sparse(200, 20), 2, col_start_id=np.array([5], np.int32), n_cols=11, chunk_size=128)


def test_what_is_zero() -> None:
    x = np.array([[-0.0, np.nan, 1e-30, np.inf]], np.float32)
    assert find_nonzero_indices(x.T)[0].tolist() == [[1, 2, 3, -1]]


def test_torch_and_jax() -> None:
    x = sparse(50, 4)
    indices, counts = find_nonzero_indices(torch.from_numpy(x))
    assert indices[2, : counts[2]].tolist() == torch.nonzero(torch.from_numpy(x[:, 2]))[:, 0].tolist()
    assert np.array_equal(np.asarray(find_nonzero_indices(jnp.asarray(x))[0]), indices.numpy())


@pytest.mark.parametrize(
    ("code", "words", "options"),
    [
        ("nkilib.argument", "n_cols is 3", {"n_cols": 3}),
        ("nkilib.argument", "n_cols is None", {"col_start_id": np.zeros(1, np.int32)}),
        ("nkilib.shape", "n_cols is 5", {"col_start_id": np.zeros(1, np.int32), "n_cols": 5}),
        ("nkilib.shape", "chunk_size is 0", {"chunk_size": 0}),
        ("nkilib.option", "index_dtype is", {"index_dtype": nl.float32}),
        ("nkilib.shape", "T is 40000", {"input_tensor": np.ones((40000, 1), np.float32), "index_dtype": nl.int16}),
        ("nkilib.dtype", "input_tensor is uint8", {"input_tensor": np.ones((9, 4), np.uint8)}),
    ],
)
def test_what_is_refused(code: str, words: str, options: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit) as caught:
        find_nonzero_indices(**({"input_tensor": np.ones((9, 4), np.float32)} | options))
    assert caught.value.code == code and words in caught.value.message
