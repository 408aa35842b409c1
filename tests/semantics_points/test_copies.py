"""Copies and fills: where bits move, where values pass float32, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store
from tests.support import both, rejection

BF16 = ml_dtypes.bfloat16
WIDE = np.array([[2**24 + 1, -(2**30) - 3, 2**31 - 1, 5]], np.int32)


def copied(engine: Any, dtype: Any = np.int32) -> Any:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=load(a), engine=engine)
        return store(tile)

    return kernel


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("name", ["vector", "gpsimd", "scalar"])
def test_tensor_copy_is_exact_between_equal_dtypes(name: str, target: str) -> None:
    engine = nisa.engine[name]
    np.testing.assert_array_equal(both(copied(engine), WIDE, target=target), WIDE)
    rounded = WIDE.astype(np.float32).astype(np.float64)
    got = both(copied(engine, np.uint32), np.abs(WIDE), target=target)
    np.testing.assert_array_equal(got, np.abs(rounded))
    assert rejection(copied(nisa.engine.scalar), WIDE, target="trn1").code == "tensor_copy.scalar-target"


def test_dma_casts_through_float32_or_not_at_all() -> None:
    def kernel(dtype: Any, mode: Any = nisa.dge_mode.unknown) -> Any:
        def cast(a: Any) -> Any:
            tile = nl.ndarray(a.shape, dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a, dge_mode=mode)
            return store(tile)

        return cast

    def packed(a: Any) -> Any:
        words = load(a).view(nl.float8_e4m3fn_x4)
        tile = nl.ndarray(a.shape, np.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=words)
        return store(tile)

    hardware = nisa.dge_mode.hwdge
    positive = np.abs(WIDE)
    np.testing.assert_array_equal(both(kernel(np.int32), WIDE), WIDE)
    np.testing.assert_array_equal(both(kernel(np.uint32), positive), positive.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(both(kernel(np.int32, hardware), WIDE), WIDE)
    assert rejection(kernel(np.uint32, hardware), positive).code == "dma_copy.hwdge-cast"
    assert rejection(packed, positive.astype(np.uint32), target="trn3").code == "dma_copy.packed-cast"


@pytest.mark.parametrize(
    ("dtype", "value", "accepted"),
    [
        (np.int32, 3, True),
        (np.int32, 2.5, False),
        (np.int32, 2.0, False),
        (np.float32, 2.5, True),
        (np.float32, 3, True),
        (BF16, 1.5, True),
        (np.uint8, 256, False),
        (nl.float8_e4m3fn_x4, 0, True),
        (nl.float8_e4m3fn_x4, 1, False),
    ],
)
def test_fill_values_have_the_kind_of_the_dtype(dtype: Any, value: float, accepted: bool) -> None:
    packed = dtype is nl.float8_e4m3fn_x4

    def kernel(_: Any) -> Any:
        tile = nl.ndarray((4, 6), dtype, buffer=nl.sbuf)
        nisa.memset(tile, value)
        return store(tile.view(nl.uint32) if packed else tile)

    if accepted:
        got = both(kernel, WIDE, target="trn3")
        np.testing.assert_array_equal(got.astype(np.float64), np.full((4, 6), value, np.float64))
    else:
        assert rejection(kernel, WIDE, target="trn3").code.startswith("memset.value-")
