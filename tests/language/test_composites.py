"""softmax, rms_norm, where and dropout against torch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, same, wide, words


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("psum", [False, True])
def test_softmax_of_rows(psum: bool, target: str) -> None:
    x = normal((100, 200), scale=10)
    got = on_tiles(nl.softmax, x, target=target, psum=psum)
    np.testing.assert_allclose(got, torch.softmax(torch.from_numpy(wide(x)), -1), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("axis", [-1, 3, (2, 3), [1, 2, 3]], ids=str)
def test_softmax_over_axes(axis: Any) -> None:
    x = normal((64, 3, 4, 5), scale=10)
    axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    powers = np.exp(wide(x) - wide(x).max(axis=axes, keepdims=True))
    got = on_tiles(lambda t: nl.softmax(t, axis), x)
    np.testing.assert_allclose(got, powers / powers.sum(axis=axes, keepdims=True), rtol=1e-5, atol=1e-12)


def test_softmax_of_large_and_infinite_numbers() -> None:
    x = np.array([[3e38, 3e38, -3e38, -np.inf], [1e4, 0, 0, 0]], np.float32)
    same(on_tiles(nl.softmax, x), [[0.5, 0.5, 0, 0], [1, 0, 0, 0]])


def test_softmax_in_bfloat16() -> None:
    x = normal((64, 100), BFLOAT16, 3)
    got = on_tiles(nl.softmax, x)
    assert got.dtype == BFLOAT16
    np.testing.assert_allclose(wide(got), torch.softmax(torch.from_numpy(wide(x)), -1), rtol=2**-8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 128])
def test_rms_norm(rows: int, target: str) -> None:
    x, w = normal((128, 300), scale=4), normal((rows, 300), seed=1)
    got = on_tiles(lambda a, b: nl.rms_norm(a, b, axis=1, n=300, epsilon=1e-3), x, w, target=target)
    wanted = torch.nn.functional.rms_norm(torch.from_numpy(wide(x)), (300,), eps=1e-3).numpy() * wide(w)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_rms_norm_of_a_part_of_the_row() -> None:
    x, w = normal((64, 30)), np.ones((64, 30), np.float32)
    got = on_tiles(lambda a, b: nl.rms_norm(a, b, axis=[1], n=60, epsilon=0.0), x, w)
    np.testing.assert_allclose(got, wide(x) / np.sqrt((wide(x) ** 2).sum(1, keepdims=True) / 60), rtol=1e-5)


def test_rms_norm_dtypes() -> None:
    x, w = normal((64, 30), BFLOAT16), normal((64, 30), BFLOAT16, seed=1)
    exact = wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 1e-6) * wide(w)
    inner, outer = on_tiles(
        lambda a, b: (
            nl.rms_norm(a, b, axis=1, n=30, compute_dtype=nl.bfloat16),
            nl.rms_norm(a, b, axis=1, n=30, dtype=nl.float32),
        ),
        x,
        w,
    )
    assert inner.dtype == BFLOAT16 and outer.dtype == np.float32
    np.testing.assert_allclose(outer, exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(wide(inner), exact, rtol=2**-5, atol=1e-3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("psum", [False, True])
def test_where_keeps_bits(psum: bool, target: str) -> None:
    condition = (normal((64, 40)) > 0).astype(np.float32)
    x, y = words((64, 40), np.int32), words((64, 40), np.int32, 1)
    same(on_tiles(nl.where, condition, x, y, target=target, psum=psum), np.where(condition, x, y))


def test_where_with_numbers_columns_and_rows() -> None:
    condition, x, y = normal((64, 1)) > 0, normal((1, 40)), normal((64, 40), seed=1)
    mask = condition.astype(np.uint8)
    same(on_tiles(nl.where, mask, x, y), np.where(condition, x, y))
    same(on_tiles(lambda c, b: nl.where(c, -1.5, b), mask, y), np.where(condition, np.float32(-1.5), y))
    same(on_tiles(lambda c, b: nl.where(c, b, 0), mask, y), np.where(condition, y, 0))
    same(on_tiles(lambda c: nl.where(c, 1, 2), mask), np.where(condition, 1, 2))


def test_where_dtypes() -> None:
    condition, x, y = normal((16, 8)) > 0, normal((16, 8), BFLOAT16), normal((16, 8), seed=1)
    got = on_tiles(nl.where, condition.astype(np.float32), x, y)
    assert got.dtype == np.float32
    same(got, np.where(condition, x.astype(np.float32), y))
    got = on_tiles(lambda c, a, b: nl.where(c, a, b, dtype=nl.bfloat16), condition.astype(np.float32), x, y)
    same(got, np.where(condition, x, y.astype(BFLOAT16)))


def test_nan_counts_as_true() -> None:
    same(on_tiles(lambda c: nl.where(c, 1.0, 2.0), np.array([[np.nan, 0, -0.0, 1]], np.float32)), [[1, 2, 2, 1]])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.int32])
def test_dropout_drops_at_the_rate(dtype: Any, target: str) -> None:
    x = np.ones((128, 400), dtype)
    got = wide(on_tiles(lambda t: nl.dropout(t, 0.3), x, target=target))
    assert set(np.unique(got)) == {0.0, 1.0}
    assert abs((got == 0).mean() - 0.3) < 0.01


def test_dropout_limits_columns_and_dtype() -> None:
    x, rate = normal((64, 50)), (np.arange(64) % 2).astype(np.float32).reshape(64, 1)
    same(on_tiles(lambda t: nl.dropout(t, 0), x), x)
    same(np.abs(on_tiles(lambda t: nl.dropout(t, 1), x)), np.zeros_like(x))
    got = on_tiles(lambda t, r: nl.dropout(t, r, dtype=nl.bfloat16), x, rate)
    assert got.dtype == BFLOAT16
    same(got[::2], x.astype(BFLOAT16)[::2])
    assert not wide(got)[1::2].any()
