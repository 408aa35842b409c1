"""Sorting by counting, and rows of tokens in the order of experts: against the references, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16, float8_e5m2

import nki
import nki.isa as nisa
from nkilib import streaming
from nkilib.errors import KernelLimit
from nkilib.experimental.subkernels import argsort_unstable, permute_routed_tokens
from nkilib.experimental.subkernels.argsort_unstable_reference import argsort_unstable_reference
from nkilib.experimental.subkernels.permute_routed_tokens_reference import permute_routed_tokens_reference


@settings(max_examples=6, deadline=None)
@given(
    count=st.sampled_from([1, 127, 129, 513]),
    dtype=st.sampled_from([np.int32, np.float32]),
    descending=st.booleans(),
    cores=st.sampled_from([1, 2]),
)
def test_any_row_is_sorted(count: int, dtype: Any, descending: bool, cores: int) -> None:
    data = np.random.default_rng(21).integers(-20, 20, (1, count)).astype(dtype)
    made = nki.simulate(argsort_unstable)[cores](data, descending)
    assert np.array_equal(made, argsort_unstable_reference(data, descending))


@nki.jit
def within(data):
    """A sort as a part of a kernel, from SBUF to SBUF."""
    found = argsort_unstable(streaming.load(data), output_in_sbuf=True)
    out = streaming.result(found.shape, found.dtype)
    nisa.dma_copy(dst=out, src=found)
    return out


def test_rows_in_sbuf() -> None:
    data = np.random.default_rng(22).integers(0, 9, (1, 150)).astype(np.int32)
    assert np.array_equal(nki.simulate(within)(data), argsort_unstable_reference(data))


def routed(tokens: int, columns: int, k: int, experts: int = 9, dtype: Any = bfloat16) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(23)
    index = np.stack([rng.permutation(experts)[:k] for _ in range(tokens)]).astype(np.int32)
    return rng.standard_normal((tokens, columns)).astype(dtype), index, rng.random((tokens, experts)).astype(bfloat16)


def equal(made: Any, given: tuple[Any, Any, Any]) -> None:
    wanted = permute_routed_tokens_reference(*given)
    assert np.array_equal(np.asarray(made).view(np.uint8), wanted.view(np.uint8))


@settings(max_examples=6, deadline=None)
@given(
    tokens=st.sampled_from([1, 2, 127, 129]),
    columns=st.sampled_from([1, 127, 513]),
    k=st.integers(1, 8),
    dtype=st.sampled_from([bfloat16, float8_e5m2]),
    cores=st.sampled_from([1, 2]),
)
def test_rows_of_any_size(tokens: int, columns: int, k: int, dtype: Any, cores: int) -> None:
    given = routed(tokens, columns, k, dtype=dtype)
    equal(nki.simulate(permute_routed_tokens)[cores](*given), given)


@pytest.mark.parametrize("cores", [1, 2])
def test_compiled(cores: int) -> None:
    given = routed(40, 16, 4)
    equal(permute_routed_tokens[cores](*given), given)


def test_from_torch_and_jax() -> None:
    given, data = routed(3, 4, 2), np.array([[5, 2, 5, 3]], np.int32)
    assert np.asarray(argsort_unstable(torch.from_numpy(data))).tolist() == [[1, 3, 0, 2]]
    assert np.asarray(argsort_unstable(jax.numpy.asarray(data))).tolist() == [[1, 3, 0, 2]]
    equal(permute_routed_tokens(*(jax.numpy.asarray(each) for each in given)), given)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((np.zeros((2, 4), np.int32),), "nkilib.shape", "dimension 0 of data is 2"),
        ((np.zeros((1, 4), bfloat16),), "nkilib.dtype", "data is bfloat16"),
        ((np.zeros((1, 16_385), np.int32),), "nkilib.shape", "N is 16385"),
    ],
)
def test_rows_that_are_refused(arguments: tuple[Any, ...], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(argsort_unstable)(*arguments)
    assert caught.value.code == code


def test_tokens_that_are_refused() -> None:
    hidden, index, affinities = routed(3, 4, 2)
    for arguments, text in (
        ((hidden.astype(np.float32), index, affinities), "hidden_input is float32"),
        ((hidden, index[:2], affinities), "dimension 0 of expert_index is 2"),
        ((hidden, np.zeros((3, 129), np.int32), affinities), "K is 129"),
    ):
        with pytest.raises(KernelLimit, match=text):
            nki.simulate(permute_routed_tokens)(*arguments)
