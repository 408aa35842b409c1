"""Sums of rows that lie scattered: against the reference, with gaps and tokens without rows, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.subkernels.topk_reduce import topk_reduce
from nkilib.experimental.subkernels.topk_reduce_reference import topk_reduce_reference


def scattered(tokens: int, k: int, hidden: int, rows: int, base: int = 1, dtype: Any = bfloat16) -> Any:
    """A buffer whose gaps hold NaN; token 0 has no row."""
    rng = np.random.default_rng(12)
    buffer = np.full((rows, hidden + 2), np.nan, dtype)
    numbers = np.full((rows, 1), 0 if base else -1, np.int32)
    filled = rng.permutation(rows)[: (tokens - 1) * k]
    buffer[filled, :hidden] = rng.integers(-8, 9, (len(filled), hidden))
    numbers[filled, 0] = np.repeat(np.arange(1, tokens), k) + base
    buffer[:, hidden:] = numbers.view(dtype)
    return buffer


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("base", [0, 1])
def test_compiled(cores: int, base: int) -> None:
    buffer = scattered(5, 4, 6, 32, base)
    assert np.array_equal(topk_reduce[cores](buffer, 5, 4, base), topk_reduce_reference(buffer, 5, 4, base))


@settings(max_examples=6, deadline=None)
@given(
    tokens=st.sampled_from([1, 2, 127, 129]),
    k=st.integers(1, 8),
    hidden=st.sampled_from([2, 126, 130, 514]),
    cores=st.sampled_from([1, 2]),
)
def test_odd_sizes(tokens: int, k: int, hidden: int, cores: int) -> None:
    buffer = scattered(tokens, k, hidden, max(8, tokens * k + 3), dtype=np.float16)
    made = nki.simulate(topk_reduce)[cores](buffer, tokens, k)
    assert np.array_equal(made, topk_reduce_reference(buffer, tokens, k))


@pytest.mark.parametrize(
    ("buffer", "k", "code", "text"),
    [
        (np.zeros((8, 6), np.float32), 2, "nkilib.dtype", "input is float32"),
        (np.zeros((8, 7), bfloat16), 2, "nkilib.shape", "H is 7, 1 more"),
        (np.zeros((8, 6), bfloat16), 9, "nkilib.shape", "K is 9"),
        (np.zeros((7, 6), bfloat16), 2, "nkilib.shape", "rows is 7"),
    ],
)
def test_what_is_refused(buffer: Any, k: int, code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(topk_reduce)(buffer, 3, k)
    assert caught.value.code == code


def test_from_torch_and_jax() -> None:
    buffer = scattered(3, 2, 4, 8, dtype=np.float16)
    for convert in (torch.from_numpy, jax.numpy.asarray):
        assert np.array_equal(np.asarray(topk_reduce(convert(buffer), 3, 2)), topk_reduce_reference(buffer, 3, 2))
