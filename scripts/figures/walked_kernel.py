"""A kernel of three instructions, an addition between a load and a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

NAME = "tensor_tensor"


@nki.jit
def doubled(a: Any) -> Any:
    """``a + a``: a load, an addition, a store."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    y = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add)
    nisa.dma_copy(dst=out, src=y)
    return out


def prepared() -> Callable[[], object]:
    """A call on one argument."""
    a = np.ones((128, 512), np.float32)
    return lambda: doubled(a)
