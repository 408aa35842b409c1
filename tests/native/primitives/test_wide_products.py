"""Products as wide as all of PSUM, which trn3 allows: NumPy's bits in both modes, and the sums of float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes


def kernel(a: Any, b: Any, ascale: Any, bscale: Any, dtype: Any, step: int, products: int) -> Any:
    """Sums of products of every `step`-th column of `b`; the results are as far apart in PSUM."""
    left, right = (nl.ndarray(t.shape, t.dtype, buffer=nl.sbuf) for t in (a, b))
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    rows, columns = a.shape[1], b.shape[1] // step
    wide = nl.ndarray((rows, columns * step), dtype, buffer=nl.psum)
    dst, moving = wide[:, 0 : columns * step : step], right[:, 0 : columns * step : step]
    if ascale is not None:
        left_scales, right_scales = (nl.ndarray(t.shape, nl.uint8, buffer=nl.sbuf) for t in (ascale, bscale))
        nisa.dma_copy(dst=left_scales, src=ascale)
        nisa.dma_copy(dst=right_scales, src=bscale)
    for _ in range(products):
        if ascale is None:
            nisa.nc_matmul(dst, left, moving)
        else:
            nisa.nc_matmul_mx(dst, left, moving, left_scales, right_scales[:, 0 : columns * step : step])
    tile = nl.ndarray((rows, columns), dtype, buffer=nl.sbuf)
    nisa.tensor_copy(tile, dst)
    out = nl.ndarray((rows, columns), dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def operands(packed: bool, depth: int, rows: int, columns: int) -> list[Any]:
    """Two tiles and their scales, or None."""
    random = np.random.default_rng(columns)
    if not packed:
        pair = [random.standard_normal((depth, n)).astype(ml_dtypes.bfloat16) for n in (rows, columns)]
        return [*pair, None, None]
    words = [
        (random.integers(0, 1 << 32, (depth, n), np.uint32) & 0x77777777).astype(np.uint32) for n in (rows, columns)
    ]
    scales = [random.integers(115, 130, (depth, n), np.uint8) for n in (rows, columns)]
    return [*(w.view(dtypes.float8_e5m2_x4.numpy) for w in words), *scales]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "microscaled"])
@pytest.mark.parametrize(
    ("dtype", "depth", "rows", "columns", "step"),
    [
        (nl.float32, 128, 128, 2048, 1),
        (nl.float32, 32, 6, 4096, 1),
        (nl.float32, 64, 34, 2050, 2),
        (nl.bfloat16, 128, 128, 2048, 1),
        (nl.bfloat16, 32, 16, 8192, 1),
        (nl.bfloat16, 32, 2, 3000, 2),
    ],
)
def test_products_as_wide_as_psum(
    packed: bool, dtype: Any, depth: int, rows: int, columns: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    given = operands(packed, depth, rows, columns)
    found = set()
    for native in ("always", "0"):
        monkeypatch.setenv("NKI_NATIVE", native)
        for simulate in (False, True):
            made = nki.jit(kernel)
            run = nki.simulate(made) if simulate else made
            found.add(run(*given, dtype, step, 2).tobytes())
            if not simulate:
                assert made.report is not None and not made.report.executed.interpreted
                assert bool(made.report.executed.native) == (native != "0")
    assert len(found) == 1
    left, right = real(given[0], given[2]), real(given[1], given[3])[..., ::step]
    got = np.frombuffer(found.pop(), dtype.numpy).astype(np.float64).reshape(rows, -1)
    magnitudes = np.tensordot(abs(left), abs(right), ((0, 1), (0, 1)))
    error = abs(got - 2 * np.tensordot(left, right, ((0, 1), (0, 1)))) / (2 * magnitudes)
    assert error.max() < (2.0**-7 if dtype == nl.bfloat16 else 2.0**-19)


def real(stored: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """The values of an operand in float64, (partitions, values of an element, columns)."""
    if scales is None:
        return stored.astype(np.float64)[:, None]
    values = stored.view(np.uint32)[:, None] >> np.array([0, 8, 16, 24], np.uint32)[:, None] & 0xFF
    partitions = np.arange(len(stored))
    factors = np.ldexp(1.0, scales[partitions // 32 * 32 + partitions % 32 // 8].astype(np.int64) - 127)
    return values.astype(np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float64) * factors[:, None]
