"""Large tensors of device memory are written past the caches, with the same bytes in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.operand_layout import STREAMED, UNIT
from nki.native.records import fill
from tests.native.kernel_support import by_numpy, natively, seen
from tests.support import environment

ROWS = 128
WIDTHS = [64, 96, 128, 256, 500, 512, 640, 1031]


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every tensor is large, and begins at a page. Holds the bytes of the rows of each record that streams."""
    monkeypatch.setattr("nki.native.operand_layout._LARGE", 0)
    monkeypatch.setattr("nki.sim.memory._ALIGNED", 0)
    found: list[int] = []
    plain = fill._stream

    def noting(native: Any, words: list[int], at: int, view: Any) -> None:
        plain(native, words, at, view)
        if words[native.template.patches[at].at + UNIT] == STREAMED:
            found.append(view.free_size * view.dtype.itemsize)

    monkeypatch.setattr(fill, "_stream", noting)
    return found


def arrays(width: int, dtype: Any) -> Callable[[], tuple[np.ndarray, ...]]:
    """Two of 2 x 128 rows with these elements."""

    def make() -> tuple[np.ndarray, ...]:
        a, b = np.random.default_rng(width).integers(-50, 50, (2, 2 * ROWS, width))
        return a.astype(dtype), b.astype(dtype)

    return make


def summed(a: Any, b: Any) -> Any:
    """A sum whose tile is the result's memory."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for rows in (slice(0, ROWS), slice(ROWS, 2 * ROWS)):
        x, y = (nl.ndarray((ROWS, a.shape[1]), a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(x, a[rows])
        nisa.dma_copy(y, b[rows])
        nisa.tensor_tensor(x, x, y, nl.add)
        nisa.dma_copy(out[rows], x)
    return out


def twice(a: Any, b: Any) -> Any:
    """A tile that is stored twice, so that it is copied; the second time between columns of something else."""
    out = nl.ndarray((2 * ROWS, a.shape[1] + 9), a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray((ROWS, a.shape[1]), a.dtype, buffer=nl.sbuf)
    edge = nl.ndarray((ROWS, a.shape[1] + 9), a.dtype, buffer=nl.sbuf)
    nisa.memset(edge, 3)
    nisa.dma_copy(x, a[0:ROWS])
    nisa.tensor_scalar(x, x, nl.multiply, 2)
    for rows, start in ((slice(0, ROWS), 0), (slice(ROWS, 2 * ROWS), 5)):
        nisa.dma_copy(out[rows], edge)
        nisa.dma_copy(out[rows, start : start + a.shape[1]], x)
    return out


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("function", [summed, twice])
def test_large_results(function: Any, width: int, dtype: Any, streamed: list[int]) -> None:
    """Rows of whole vectors and others, at the beginning of a line and elsewhere; on one thread and on two."""
    make = arrays(width, dtype)
    expected = by_numpy(function, make)
    assert not streamed, "NumPy writes as it always does"
    assert natively(function, make) == expected
    assert bool(streamed) == (width * np.dtype(dtype).itemsize >= fill.STREAMED_BYTES)
    assert natively(function, make, threads=2) == expected


@pytest.mark.parametrize("function", [summed, twice])
def test_eager_mode(function: Any, streamed: list[int]) -> None:
    """What one instruction stores the next one finds."""
    make = arrays(512, np.float32)
    with environment(NKI_NATIVE="always"):
        found = seen(nki.simulate(nki.jit(function)), make())
    assert streamed and found == by_numpy(function, make)


def test_rows_that_stay_in_the_caches(streamed: list[int]) -> None:
    """Columns, and rows whose elements lie apart, are written as ever; and so is everything small."""

    def apart(a: Any, b: Any) -> Any:
        out = nl.ndarray((ROWS, 512, 2), a.dtype, buffer=nl.shared_hbm)
        for side, source in enumerate((a, b)):
            x = nl.ndarray((ROWS, 512), a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(x, source[0:ROWS])
            nisa.dma_copy(out[:, :, side], x)
        return out

    make = arrays(512, np.float32)
    assert natively(apart, make) == by_numpy(apart, make)
    assert not streamed


def test_small_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are likely to be read again soon."""
    asked: list[bool] = []
    monkeypatch.setattr(fill, "_stream", lambda *_: asked.append(True))
    make = arrays(512, np.float32)
    assert natively(summed, make) == by_numpy(summed, make)
    assert not asked
