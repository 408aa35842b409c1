"""``nki.dtype``, which published kernels import and annotate with."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.dtype as nt
import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType
from tests.support import both


def test_it_has_the_dtypes_of_the_language() -> None:
    language = {name: value for name, value in vars(nl).items() if isinstance(value, DType)}
    assert {name: getattr(nt, name) for name in nt.__all__} == language


def test_a_kernel_may_use_it() -> None:
    def kernel(a: Any, kind: nki.dtype = nt.bfloat16) -> Any:  # type: ignore[valid-type] # as published kernels do
        tile = nl.ndarray(a.shape, kind, buffer=nl.sbuf)
        result = nl.ndarray(a.shape, nki.dtype.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=result, src=tile)
        return result

    a = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    expected = (a.view(np.uint32) + 0x7FFF + ((a.view(np.uint32) >> 16) & 1)) & 0xFFFF0000
    np.testing.assert_array_equal(both(kernel, a).view(np.uint32), expected)
