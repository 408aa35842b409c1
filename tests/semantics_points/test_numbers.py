"""Numbers: the sine, eight-bit floats, packed dtypes, and the figures of the timing model."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.target.load import load_target
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store
from tests.support import both, rejection

E4M3, E4M3FN = ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn


def test_sine_of_nine() -> None:
    def kernel(a: Any) -> Any:
        tile, raw = load(a), nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.activation(dst=raw, op=nl.sin, data=tile)
        return store(raw), store(nl.sin(tile))

    with pytest.warns(UserWarning, match="domain"):
        raw, reduced = both(kernel, np.array([[9.0, -9.0]], np.float32))
    np.testing.assert_allclose(raw, [[27.65, -27.65]], rtol=1e-3)
    np.testing.assert_allclose(reduced, [[math.sin(9), -math.sin(9)]], rtol=1e-5)


def test_sizes_of_packed_dtypes() -> None:
    sizes = {dtype.name: dtype.itemsize for dtype in (nl.float4_e2m1fn_x4, nl.float8_e4m3fn_x4, nl.float8_e5m2_x4)}
    assert sizes == {"float4_e2m1fn_x4": 2, "float8_e4m3fn_x4": 4, "float8_e5m2_x4": 4}

    def kernel(a: Any, b: Any) -> Any:
        four, eight = load(a).view(nl.float4_e2m1fn_x4), load(b).view(nl.float8_e5m2_x4)
        assert (four.shape, eight.shape) == (a.shape, b.shape)
        return store(four.view(nl.uint16)), store(eight.view(nl.uint32))

    words = np.arange(24).reshape(4, 6)
    for got in both(kernel, words.astype(np.uint16), words.astype(np.uint32), target="trn3"):
        np.testing.assert_array_equal(got, words)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_double_row_takes_two_rows_exactly(rows: int) -> None:
    def kernel(a: Any, b: Any) -> Any:
        total = nl.ndarray((4, 5), np.float32, buffer=nl.psum)
        nisa.nc_matmul(total, load(a), load(b), perf_mode=nisa.matmul_perf_mode.double_row)
        return store(nl.copy(total))

    r = np.random.default_rng(rows)
    a, b = (r.integers(-3, 4, (8, rows, n)).astype(E4M3) for n in (4, 5))
    if rows == 2:
        wanted = sum(a[:, i].astype(np.float32).T @ b[:, i].astype(np.float32) for i in range(2))
        np.testing.assert_array_equal(both(kernel, a, b), wanted)
    else:
        assert rejection(kernel, a, b).code.startswith("nc_matmul.")


def test_the_two_e4m3_do_not_mix() -> None:
    def kernel(a: Any, b: Any) -> Any:
        total = nl.ndarray((2, 2), np.float32, buffer=nl.psum)
        nisa.nc_matmul(total, load(a), load(b))
        return store(nl.copy(total))

    old, new = np.full((1, 2), 240, E4M3), np.full((1, 2), 448, E4M3FN)
    assert (both(kernel, old, old, target="trn3") == 240**2).all()
    assert (both(kernel, new, new, target="trn3") == 448**2).all()
    for pair in ((old, new), (new, old)):
        assert rejection(kernel, *pair, target="trn3").code.startswith("nc_matmul.")
    assert rejection(kernel, new, new, target="trn2").code.startswith("nc_matmul.")


@pytest.mark.parametrize(("name", "start", "ramp"), [("trn1", 1, 0), ("trn2", 0.5, 3000), ("trn3", 0.5, 3000)])
def test_figures_of_the_timing_model(name: str, start: float, ramp: float) -> None:
    """The limit after idle times is documented for trn2 and trn3."""
    target = load_target(name)
    assert target.issue.min_ii_cycles == target.issue.matmul_min_ii_cycles == 64
    assert target.issue.fp32_matmul_factor == 4
    assert (target.throttle.start_utilization, target.throttle.ramp_ns) == (start, ramp)
