"""The memory of tiles: large pages, and bytes that tensors use one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.native.plan.cache_layout import Layout
from nki.native.run import huge_pages
from nki.native.run import kernel as native_kernel
from tests.native.kernel_support import by_numpy, natively


@pytest.mark.parametrize("size", [0, 1, huge_pages.LARGE // 2 - 1, huge_pages.LARGE // 2, 3 * huge_pages.LARGE + 17])
def test_pages(size: int) -> None:
    """There are as many bytes as asked for, all of them usable; many begin with a large page."""
    memory = huge_pages.reserved(size)
    assert memory.shape == (size,) and memory.dtype == np.uint8
    memory[:] = 7
    assert int(memory.sum(dtype=np.int64)) == 7 * size
    if size >= huge_pages.LARGE // 2 and hasattr(huge_pages.mmap, "MADV_HUGEPAGE"):
        assert memory.__array_interface__["data"][0] % huge_pages.LARGE == 0


def test_a_system_without_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the memory is NumPy's."""
    monkeypatch.delattr(huge_pages.mmap, "MADV_HUGEPAGE", raising=False)
    assert huge_pages.reserved(huge_pages.LARGE).shape == (huge_pages.LARGE,)


def halving(a: Any) -> Any:
    """Each tile is somewhat smaller than the one before the last, which nobody needs any more."""
    out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
    x = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(x, a)
    for columns in (448, 384, 320, 256, 192, 128, 64):
        y = nl.ndarray((128, columns), nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(y, x[:, 0:columns], nl.multiply, 1.5)
        x = y
    nisa.dma_copy(out, x)
    return out


def test_bytes_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a tensor that is somewhat smaller; much longer rows are left for others."""
    found: list[Layout] = []
    arrange = native_kernel.arrange
    monkeypatch.setattr(native_kernel, "arrange", lambda *given: found.append(arrange(*given)) or found[-1])

    def arrays() -> tuple[np.ndarray]:
        return (np.random.default_rng(5).standard_normal((128, 512)).astype(np.float32),)

    assert natively(halving, arrays) == by_numpy(halving, arrays)
    chunks = found[-1].chunks.values()
    assert len(chunks) == 6, "the first tile is the argument, the last one the result"
    assert len({chunk.start for chunk in chunks}) == 4, "448 for 320 too, 384 for 256; new ones for 192 and 128"
