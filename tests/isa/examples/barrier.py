"""Examples of barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.isa.examples.dma import V3, normal
from tests.isa.registry import Breaks, Legal


def swap_rows(a: Any) -> Any:
    """Each core writes its row, and copies the other's after the barrier."""
    me = nl.program_id(0)
    shared = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=shared[me : me + 1, :], src=a[me : me + 1, :])
    nisa.barrier()
    nisa.dma_copy(dst=out[me : me + 1, :], src=shared[1 - me : 2 - me, :])
    nisa.barrier(engine=nisa.engine.scalar)
    return out


def waiting(cores: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.barrier(cores)
        nisa.dma_copy(dst=out, src=a)
        return out

    return kernel


EXAMPLES = [
    Legal("barrier", swap_rows, normal((2, 6)), lambda a: np.stack([a[1], a[0]]), V3, lnc=2),
    Legal("barrier", waiting((0,)), normal((2, 6)), lambda a: a, V3),
    Breaks("barrier.cores", waiting((1, 0)), normal((2, 6)), lnc=2),
]
