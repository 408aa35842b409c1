"""Kernels as a whole: what goes in and comes out, loop indices, and what is there by default."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store
from tests.support import environment, rejection

X = np.arange(12, dtype=np.float32).reshape(3, 4)
BOTH = [nki.jit, nki.simulate]


def test_the_index_of_a_loop_is_not_written() -> None:
    def kernel(a: Any) -> Any:
        nl.fori_loop(0, 4, lambda i: nisa.register_move(i, 3))
        return a

    assert rejection(kernel, X).code == "register_move.frozen"


def test_what_a_kernel_returns_and_takes() -> None:
    def on_chip(a: Any) -> Any:
        return load(a)

    def private(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    def copied(pair: Any) -> Any:
        return store(load(pair[0]))

    assert rejection(on_chip, X).code == "return.region"
    for run in BOTH:
        np.testing.assert_array_equal(run(copied)([X]), X)
        np.testing.assert_array_equal(run(copied)((X,)), X)
        with pytest.warns(UserWarning, match=r"return\.private-hbm"):
            run(private)(X)


def unwritten(dtype: Any) -> Any:
    def kernel(_: Any) -> Any:
        tile = nl.ndarray((2, 3), dtype, buffer=nl.sbuf)
        return store(tile)

    return kernel


@pytest.mark.parametrize("run", BOTH, ids=["compiled", "eager"])
def test_defaults_of_the_simulator(run: Any) -> None:
    with pytest.warns(UserWarning, match=r"memory\.uninitialized"):
        assert np.isnan(run(unwritten(np.float32))(X)).all()
    for dtype in (np.int32, np.uint8, np.int16):
        with pytest.warns(UserWarning, match=r"memory\.uninitialized"):
            assert (run(unwritten(dtype))(X) == 4).all()

    def facts(a: Any) -> Any:
        assert nisa.get_nc_version() == nisa.nc_version.gen4
        return store(load(store(load(a, ml_dtypes.bfloat16)), np.float32))

    thirds = (X / 3).astype(np.float32)
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="", NKI_PRECISE_FP=""):
        kernel = run(facts)
        got = kernel(thirds)
    np.testing.assert_array_equal(got, thirds.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert kernel.report.target == "trn3"
