"""Two cores that wait for each other without naming data."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.support import both, rejection

X = np.random.default_rng(2).integers(-9, 9, (2, 16, 8)).astype(np.float32)


def test_both_cores_wait_at_a_barrier() -> None:
    """Each core writes its half, and after the barrier reads the half of the other one, three times."""

    def kernel(a: Any) -> Any:
        me = nl.program_id(0)
        shared = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a[me])
        for _ in range(3):
            nl.store(shared[me], tile)
            nisa.barrier()
            other = nl.load(shared[1 - me])
            nisa.tensor_tensor(tile, tile, other, nl.add if me == 0 else nl.subtract)
            nisa.barrier(engine=nisa.engine.vector)
        nl.store(out[me], tile)
        return out

    first, second = X.copy()
    for _ in range(3):
        first, second = first + second, second - first
    np.testing.assert_array_equal(both(kernel, X, lnc=2), np.stack([first, second]))


def test_one_core_waits_for_nobody() -> None:
    def kernel(a: Any) -> Any:
        nisa.barrier(cores=(0,))
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    def waits(a: Any) -> Any:
        nisa.barrier()
        return a

    np.testing.assert_array_equal(both(kernel, X), X)
    assert rejection(waits, X).code == "cores.alone"


def test_a_core_that_does_not_come_is_an_error_in_both_modes() -> None:
    def kernel(a: Any) -> Any:
        if nl.program_id(0) == 0:
            nisa.barrier()
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    assert rejection(kernel, X, lnc=2).code.startswith("cores.")
