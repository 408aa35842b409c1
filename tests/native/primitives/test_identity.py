"""Transposes of an array that multiplies by an identity matrix: native code has the bits of the product."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.support import environment


def turned(a: Any, dtype: Any = None, step: int = 1, wide: int = 1) -> Any:
    """By the Tensor engine, from every `step`-th element into every `wide`-th one."""
    rows, columns = a.shape
    data = nl.zeros((rows, columns * step), a.dtype)[:, 0 : columns * step : step]
    nisa.dma_copy(dst=data, src=a)
    dst = nl.ndarray((columns, rows * wide), dtype or a.dtype, buffer=nl.psum)[:, 0 : rows * wide : wide]
    nisa.nc_transpose(dst=dst, data=data, engine=nisa.engine.tensor)
    out = nl.ndarray((columns, rows), dst.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(dst))
    return out


def values(shape: tuple[int, int], dtype: Any, special: bool) -> np.ndarray:
    """Numbers, -0.0 and subnormals; `special` adds rows of the result with one NaN or infinity, or several."""
    made = np.random.default_rng(shape[0]).standard_normal(shape).astype(dtype)
    made.flat[0], made.flat[-1] = -0.0, 1e-40
    if special:
        made[1, 2], made[3, 5], made[2, 6], made[4, 6] = np.nan, np.inf, np.inf, -np.inf
    return made


def results(native: str, a: np.ndarray, *args: Any) -> tuple[np.ndarray, str]:
    with environment(NKI_NATIVE=native, NEURON_PLATFORM_TARGET_OVERRIDE="trn1"):
        kernel = nki.jit(turned)
        return np.asarray(kernel(a, *args)), kernel.report.provenance()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize(
    ("shape", "special", "step", "wide"),
    [
        ((128, 128), True, 1, 1),
        ((1, 1), False, 1, 1),
        ((5, 17), True, 2, 1),
        ((128, 3), False, 1, 2),
        ((33, 100), True, 2, 2),
    ],
)
def test_the_bits_of_the_product(shape: Any, special: bool, step: int, wide: int, dtype: Any) -> None:
    a = values(shape, dtype, special)
    found, how = results("always", a, nl.float32, step, wide)
    expected, _ = results("0", a, nl.float32, step, wide)
    assert "natively" in how
    assert (found.view(np.uint32) == expected.view(np.uint32)).all()


def test_rows_with_what_is_not_finite_are_spoiled() -> None:
    a = values((8, 16), np.float32, special=True)
    found = results("always", a)[0]
    product = np.einsum("km,kn->mkn", a.astype(np.float64), np.eye(8)).sum(1)  # as the array has it
    assert (np.isnan(found) == np.isnan(product)).all()
    assert np.isnan(found[2]).all() and np.isinf(found[5, 3]) and np.isnan(found[5, :3]).all()
    assert (found[7] == a[:, 7]).all()
    assert not np.signbit(found[0, 0])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
def test_a_destination_of_the_same_dtype(dtype: Any) -> None:
    a = values((40, 24), dtype, special=True)
    found, how = results("always", a, None, 1, 2)
    expected, _ = results("0", a, None, 1, 2)
    assert "natively" in how and found.dtype == a.dtype
    assert found.tobytes() == expected.tobytes()


def eagerly(a: Any) -> Any:
    return nki.simulate(nki.jit(turned))(a)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_eager_runs_use_it_too(target: str, dtype: Any) -> None:
    a = values((64, 32), dtype, special=False)
    with environment(NKI_NATIVE="always", NEURON_PLATFORM_TARGET_OVERRIDE=target):
        kernel = nki.simulate(nki.jit(turned))
        found = np.asarray(kernel(a))
        executed = kernel.report.executed
    assert (found == a.T).all()
    assert executed.native and not executed.interpreted
