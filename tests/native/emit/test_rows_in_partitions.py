"""Products of which a partition holds two rows (double_row) are native, and have NumPy's bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import float32
from nki.core.tensor import Buffer, MemoryRegion, whole
from nki.native.records.moves import _MoveBody
from nki.native.trace.symbolic_execution import NotTraceable
from nki.spec.engine import engine
from nki.target.load import load_target

DTYPES = {"float8_e4m3": ml_dtypes.float8_e4m3, "float8_e5m2": ml_dtypes.float8_e5m2}
LAYOUTS = ("whole", "part", "stepped", "split")


def kernel(a: Any, b: Any, rows: int, columns: int, layout: str, products: int) -> Any:
    """Sums of products of parts of two tiles, which lie in them as `layout` says."""
    left, right = (nl.ndarray(t.shape, t.dtype, buffer=nl.sbuf) for t in (a, b))
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    wide = nl.ndarray((rows, columns), nl.float32, buffer=nl.psum)
    step = 2 if layout == "stepped" else 1

    def part(tile: Any, count: int) -> Any:
        if layout == "split":
            return tile[:, :, 0:count].reshape((tile.shape[0], 2, 2, count // 2))
        start = 0 if layout == "whole" else 3
        return tile[:, :, start : start + count * step : step]

    for _ in range(products):
        nisa.nc_matmul(wide, part(left, rows), part(right, columns), perf_mode=nisa.matmul_perf_mode.double_row)
    tile = nl.ndarray(wide.shape, nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(tile, wide)
    out = nl.ndarray(wide.shape, nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def reference(a: np.ndarray, b: np.ndarray, rows: int, columns: int, layout: str, times: int) -> np.ndarray:
    """In float64, which is exact for 8-bit floats up to the last rounding of each sum."""
    start, step = (0 if layout in ("whole", "split") else 3), (2 if layout == "stepped" else 1)
    left, right = (
        t.astype(np.float64)[:, :, start : start + n * step : step].reshape(-1, n) for t, n in ((a, rows), (b, columns))
    )
    return times * (left.T @ right)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("depth", "rows", "columns"), [(128, 128, 256), (7, 2, 10), (100, 34, 70)])
def test_native_products_have_the_bits_of_numpy(
    layout: str, depth: int, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(depth)
    shapes = [(depth, 2, n if layout in ("whole", "split") else 3 + 2 * n) for n in (rows, columns)]
    a, b = (
        (4 * random.standard_normal(shape)).astype(kind) for shape, kind in zip(shapes, DTYPES.values(), strict=True)
    )
    found = []
    for native in ("always", "0"):
        monkeypatch.setenv("NKI_NATIVE", native)
        for simulate in (False, True):
            made = nki.jit(kernel)
            result = (nki.simulate(made) if simulate else made)(a, b, rows, columns, layout, 5)
            found.append(result.tobytes())
            if not simulate:
                assert made.report is not None
                assert (made.report.executed.native > 5, made.report.executed.interpreted or 0) == (native != "0", 0)
    assert len(set(found)) == 1
    wanted = reference(a, b, rows, columns, layout, 5)
    np.testing.assert_allclose(np.frombuffer(found[0], np.float32).reshape(rows, columns), wanted, rtol=1e-5, atol=1e-3)


def test_rows_of_a_partition_are_no_transpose() -> None:
    """What is taken apart into rows has another shape than what lies in memory."""
    view = whole(Buffer(1, "a", MemoryRegion.sbuf, (4, 2, 8), float32))
    body = _MoveBody(engine.vector, load_target("trn2"))
    body.transpose(body.reshape(body.load_raw(view), (4, 16)))
    with pytest.raises(NotTraceable):
        body.transpose(body.reshape(body.load_raw(view), (8, 8)))
