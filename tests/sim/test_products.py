"""Matrix products of any size have the bits of the canonical padded product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nki.sim import products
from nki.sim.products import matmul_blas

F = np.float32


def padded(stationary: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """One product of (128, K) by (K, 512), with zeros around the operands."""
    k, m = stationary.shape
    n = moving.shape[1]
    depth = (k + 127) // 128 * 128
    left, right = np.zeros((128, depth), F), np.zeros((depth, 512), F)
    left[:m, :k], right[:k, :n] = stationary.T, moving
    return np.ascontiguousarray((left @ right)[:m, :n])


def operands(k: int, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(k * 7 + m * 3 + n)
    a = r.standard_normal((k, m)) * 2.0 ** r.integers(-75, 30, (k, m))
    b = r.standard_normal((k, n)) * 2.0 ** r.integers(-75, 30, (k, n))
    return a.astype(F), b.astype(F)


SIZES = [(1, 1, 1), (128, 128, 512), (128, 1, 512), (128, 128, 1), (64, 128, 512), (100, 17, 33), (3, 16, 16)]
DEEP = [(256, 128, 512), (256, 20, 100), (512, 16, 16), (512, 128, 512), (300, 64, 48)]


@pytest.mark.parametrize("shape", SIZES + DEEP, ids=str)
def test_small_products_are_those_of_the_padded_shape(shape: tuple[int, int, int]) -> None:
    a, b = operands(*shape)
    assert matmul_blas(a, b).tobytes() == padded(a, b).tobytes()


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("layout", [np.asfortranarray, lambda v: np.repeat(v, 2, axis=1)[:, ::2]], ids=["F", "steps"])
def test_the_layout_does_not_matter(shape: tuple[int, int, int], layout: Callable[[np.ndarray], np.ndarray]) -> None:
    a, b = operands(*shape)
    assert matmul_blas(layout(a), layout(b)).tobytes() == padded(a, b).tobytes()


def test_a_matrix_by_itself() -> None:
    a, _ = operands(128, 64, 1)
    assert matmul_blas(a, a).tobytes() == padded(a, a).tobytes()


def test_special_values_stay_in_their_rows_and_columns() -> None:
    a, b = np.ones((20, 5), F), np.ones((20, 6), F)
    a[3, 1], b[4, 2] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        got = matmul_blas(a, b)
    assert np.isnan(got[:, 2]).all()
    assert np.isinf(np.delete(got[1], 2)).all()
    assert (np.delete(np.delete(got, 1, axis=0), 2, axis=1) == 20).all()


def test_a_library_that_sums_small_shapes_in_another_order_gets_the_canonical_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_same_order", lambda *shape: False)
    a, b = operands(128, 32, 48)
    assert matmul_blas(a, b).tobytes() == padded(a, b).tobytes()
    wide = np.concatenate([b] * 13, axis=1)
    assert matmul_blas(a, wide)[:, -48:].tobytes() == padded(a, b).tobytes()
