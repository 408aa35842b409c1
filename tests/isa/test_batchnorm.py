"""Meaning of bn_stats and bn_aggr: against torch, on hard data, and in small dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nki.core import dtypes
from nki.isa.batchnorm import bn_aggr, bn_stats
from tests.isa.tiles import empty, load, store
from tests.support import both

INF, NAN = float("inf"), float("nan")


def stats(a: Any, dtype: Any = np.float32) -> Any:
    def kernel(values: Any) -> Any:
        result = empty((values.shape[0], 6), dtype)
        bn_stats(result, load(values))
        return store(result)

    return both(kernel, a)


def moments(a: Any, piece: int = 512) -> Any:
    """Mean and variance of rows by both instructions."""

    def kernel(values: Any) -> Any:
        tile, count = load(values), -(-values.shape[1] // piece)
        pieces, result = empty((values.shape[0], count * 6)), empty((values.shape[0], 2))
        for i in range(count):
            end = min(piece * (i + 1), values.shape[1])
            bn_stats(pieces[:, 6 * i : 6 * i + 6], tile[:, piece * i : end])
        bn_aggr(result, pieces)
        return store(result)

    return both(kernel, a)


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 60)),
    piece=st.integers(1, 25),
    dtype=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, np.int8]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25)
def test_mean_and_variance_are_those_of_torch(shape: Any, piece: int, dtype: Any, seed: int) -> None:
    a = (np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)
    variance, mean = torch.var_mean(torch.tensor(a.astype(np.float64)), dim=1, correction=0)
    got = moments(a, piece)
    np.testing.assert_allclose(got[:, 0], mean.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[:, 1], variance.numpy(), rtol=1e-5, atol=1e-5)


def test_a_large_offset_does_not_swallow_the_variance() -> None:
    """The mean square minus the squared mean would lose all digits here."""
    a = 10000 + np.random.default_rng(3).standard_normal((4, 512)).astype(np.float32)
    np.testing.assert_allclose(moments(a)[:, 1], a.astype(np.float64).var(1), rtol=1e-3)


def test_even_and_odd_are_positions() -> None:
    got = stats(np.array([[1, 10, 3, 20, 5]], np.float32))
    np.testing.assert_allclose(got, [[3, 3, 8, 2, 15, 50]], rtol=1e-6)


def test_special_values_stay_in_their_half() -> None:
    got = stats(np.array([[NAN, 1, 2, 3], [INF, 1, 2, 3], [-0.0, 1e-45, 0.0, 1e-45]], np.float32))
    np.testing.assert_array_equal(got[0], [2, NAN, NAN, 2, 2, 2])
    np.testing.assert_array_equal(got[1], [2, INF, NAN, 2, 2, 2])
    np.testing.assert_array_equal(got[2], np.array([2, 0, 0, 2, 1e-45, 0], np.float32))


def test_results_round_to_their_dtype() -> None:
    got = stats(np.full((2, 512), 1.0, np.float32), dtypes.bfloat16)
    np.testing.assert_array_equal(got.astype(np.float32), [[256, 1, 0, 256, 1, 0]] * 2)


def test_no_elements_have_no_mean() -> None:
    def kernel(values: Any) -> Any:
        result = empty((1, 2))
        bn_aggr(result, load(values))
        return store(result)

    assert np.isnan(both(kernel, np.zeros((1, 6), np.float32))).all()


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_a_full_piece_is_legal_everywhere(target: str) -> None:
    def kernel(values: Any) -> Any:
        result = empty((2, 6))
        bn_stats(result, load(values))
        return store(result)

    np.testing.assert_array_equal(both(kernel, np.ones((2, 512), np.float32), target=target)[:, 0], [256, 256])
