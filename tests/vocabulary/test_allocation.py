"""Tensors where the compiler puts them, and tensors where the kernel does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from tests.support import both, rejection

X = np.random.default_rng(1).integers(-50, 50, (64, 32)).astype(np.float32)


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_automatic() -> None:
    """Many live tiles, and more of them over time than there is room for at once."""

    def kernel(a: Any) -> Any:
        total = nl.zeros(a.shape, a.dtype, buffer=nl.sbuf)
        for step in range(6):
            large = nl.ndarray((64, 16384), a.dtype, buffer=nl.sbuf)  # 64 KiB of each partition
            nisa.dma_copy(dst=large[:, step : step + 32], src=a)
            nisa.tensor_tensor(total, total, large[:, step : step + 32], nl.add)
        return stored(total)

    np.testing.assert_array_equal(both(kernel, X), 6 * X)


def test_explicit() -> None:
    """Two buffers in turn at addresses of the kernel's own, in both memories of the chip."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        weights = nl.ndarray((64, 64), a.dtype, buffer=nl.sbuf, address=(0, 4096))
        nisa.memset(weights, 0.0)
        nisa.affine_select(weights, [[-1, 64]], 1, nl.ones((64, 64), a.dtype, buffer=nl.sbuf), 0.0, nl.equal)
        for i in range(4):
            tile = nl.ndarray((64, 8), a.dtype, buffer=nl.sbuf, address=(0, 256 * (i % 2)))
            bank = nl.ndarray((64, 8), nl.float32, buffer=nl.psum, address=(0, 2048 * (i % 2)))
            nisa.dma_copy(dst=tile, src=a[:, 8 * i : 8 * i + 8])
            nisa.nc_matmul(bank, weights, tile, accumulate=False)
            nisa.tensor_scalar(tile, bank, nl.add, 1.0)
            nisa.dma_copy(dst=out[:, 8 * i : 8 * i + 8], src=tile)
        return out

    np.testing.assert_array_equal(both(kernel, X), X + 1)


def test_tensors_at_one_address_are_the_same_bytes() -> None:
    def kernel(a: Any) -> Any:
        floats = nl.ndarray((32, 16), nl.float32, buffer=nl.sbuf, address=(32, 512))
        words = nl.ndarray((32, 8), nl.uint32, buffer=nl.sbuf, address=(32, 512 + 4 * 4))
        nisa.dma_copy(dst=floats, src=a)
        return stored(words)

    np.testing.assert_array_equal(both(kernel, X[:32, :16].copy()), X[:32, 4:12].view(np.uint32))


def test_both_kinds_together() -> None:
    def kernel(a: Any) -> Any:
        placed = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf, address=(0, 0))
        free = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=placed, src=a)
        nisa.memset(free, 2.0)
        nisa.tensor_tensor(free, placed, free, nl.multiply)
        return stored(free), stored(placed)

    product, placed = both(kernel, X)
    np.testing.assert_array_equal(product, 2 * X)
    np.testing.assert_array_equal(placed, X)


def _placed(address: tuple[int, int]) -> Any:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf, address=address)
        nisa.dma_copy(dst=tile, src=a)
        return stored(tile)

    return kernel


@pytest.mark.parametrize("address", [(128, 0), (-1, 0), (96, 0)])
def test_addresses_outside_are_refused(address: tuple[int, int]) -> None:
    error = rejection(_placed(address), X)
    assert error.code.startswith("tensor.") and error.fix


def test_an_address_past_the_end_of_a_partition_is_refused_by_calls() -> None:
    with pytest.raises(NkiError, match=r"tensor\.capacity"):
        nki.jit(_placed((0, 1 << 20)))(X)
