"""Reductions against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, same, wide
from tests.together import together

NAMES = ("sum", "max", "min", "mean", "prod")
AXES: list[tuple[Any, tuple[int, ...], tuple[int, ...]]] = [
    (3, (3,), (64, 3, 4)),
    (-1, (3,), (64, 3, 4)),
    ([2, 3], (2, 3), (64, 3)),
    ((-2, -1), (2, 3), (64, 3)),
    ((3, 1, 2), (1, 2, 3), (64, 1)),
]


@together("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
@together("psum", [False, True])
def test_rows(name: str, psum: bool, target: str) -> None:
    x = normal((100, 60)) + np.float32(2)
    got = on_tiles(lambda t: getattr(nl, name)(t, axis=1), x, target=target, psum=psum)
    assert got.shape == (100, 1) and got.dtype == np.float32
    np.testing.assert_allclose(got, getattr(np, name)(wide(x), axis=1, keepdims=True), rtol=1e-5)


@together("axis, plain, shape", AXES)
@pytest.mark.parametrize("name", NAMES)
def test_axes_and_kept_dimensions(name: str, axis: Any, plain: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = normal((64, 3, 4, 5)) + np.float32(2)
    function, wanted = getattr(nl, name), getattr(np, name)(wide(x), axis=plain, keepdims=True)
    short, kept = on_tiles(lambda t: (function(t, axis), function(t, axis, keepdims=True)), x)
    assert short.shape == shape and kept.shape == wanted.shape
    np.testing.assert_allclose(kept, wanted, rtol=1e-5)
    same(short, kept.reshape(shape))


@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name: str) -> None:
    x = (np.abs(normal((32, 20))) + 0.5).astype(BFLOAT16)
    own, other = on_tiles(lambda t: (getattr(nl, name)(t, 1), getattr(nl, name)(t, 1, dtype=nl.float32)), x)
    assert own.dtype == BFLOAT16 and other.dtype == np.float32
    wanted = getattr(np, name)(wide(x), axis=1, keepdims=True)
    np.testing.assert_allclose(other, wanted, rtol=1e-5)
    np.testing.assert_allclose(wide(own), wanted, rtol=2**-8)


def test_integers() -> None:
    x = normal((32, 20), np.int16, 100)
    same(on_tiles(lambda t: nl.sum(t, 1, dtype=nl.int32), x), x.sum(axis=1, keepdims=True))
    same(on_tiles(lambda t: nl.max(t, 1), x), x.max(axis=1, keepdims=True))


@together("target", TARGETS)
@together("keepdims", [False, True])
@pytest.mark.parametrize(("axis", "plain"), [(3, (3,)), ((2, 3), (2, 3)), ((1, 2, 3), (1, 2, 3))])
def test_variance_always_keeps_dimensions(axis: Any, plain: tuple[int, ...], keepdims: bool, target: str) -> None:
    x = normal((64, 3, 4, 5)) + np.float32(100)
    got = on_tiles(lambda t: nl.var(t, axis, keepdims=keepdims), x, target=target)
    wanted = wide(x).var(axis=plain, keepdims=True)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_variance_from_psum_to_another_dtype() -> None:
    x = normal((64, 700), BFLOAT16, 4)
    got = on_tiles(lambda t: nl.var(t, 1, dtype=nl.float32), x, psum=True)
    np.testing.assert_allclose(got, wide(x).var(axis=1, keepdims=True), rtol=1e-5)


def test_all() -> None:
    x = np.ones((32, 4, 3), np.float32)
    x[5, 2, 1] = 0
    x[6, 0, 0] = -0.5
    same(on_tiles(lambda t: nl.all(t, axis=(1, 2)), x), x.all(axis=(1, 2)).reshape(32, 1))
    got = on_tiles(lambda t: nl.all(t, axis=2, dtype=nl.uint8), x)
    assert got.dtype == np.uint8
    same(got, x.all(axis=2))
