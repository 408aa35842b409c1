"""Transposes while DMA moves data."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.isa import dma_transpose
from tests.isa.tiles import bits_of, filled, floats, store
from tests.isa.tiles import dma_load as load
from tests.support import both

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip
QUIET_NAN, SIGNALLING_NAN = 0x7FC01234, 0x7F812345


@given(st.sampled_from([2, 3, 4]), st.data(), st.sampled_from([np.float32, BF16, np.int16]), st.booleans())
def test_transposes_of_all_ranks(rank: int, data: Any, dtype: Any, from_sbuf: bool) -> None:
    shape = tuple(data.draw(st.integers(1, 20)) for _ in range(rank))
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[rank]
    array = np.random.default_rng(1).integers(0, 2**15, shape).astype(dtype)

    def kernel(a: Any) -> Any:
        tile = nl.ndarray(tuple(shape[axis] for axis in order), a.dtype, buffer=nl.sbuf)
        dma_transpose(dst=tile, src=load(a) if from_sbuf else a)
        return store(tile)

    result = both(kernel, array)
    for index in np.ndindex(shape):
        assert result[tuple(index[axis] for axis in order)] == array[index]


def test_a_transpose_moves_bits() -> None:
    data = floats(QUIET_NAN, SIGNALLING_NAN, 1, 0x80000000, 0xFF800000, 0x7F7FFFFF).reshape(2, 3)

    def kernel(a: Any) -> Any:
        tile = nl.ndarray((3, 2), a.dtype, buffer=nl.sbuf)
        dma_transpose(dst=tile, src=a)
        return store(tile)

    assert np.array_equal(bits_of(both(kernel, data)), bits_of(data).T)


def test_a_skipping_transpose_leaves_the_columns_of_rows_outside() -> None:
    """The simulator of 0.5 fixed the same thing: such columns were overwritten with zeros."""
    data = np.arange(60).reshape(20, 3).astype(np.float16)
    rows = np.array([[i if i % 5 else 2**32 - 1] for i in range(16)], np.uint32)

    def kernel(a: Any, index: Any) -> Any:
        tile, table = filled((3, 16), -4.0, a.dtype), load(index)
        dma_transpose(dst=tile, src=a.vector_select(0, table), oob_mode=SKIP)
        return store(tile)

    wanted = np.stack([data[i] if i % 5 else np.float16([-4] * 3) for i in range(16)], axis=1)
    assert np.array_equal(both(kernel, data, rows), wanted)


@pytest.mark.parametrize(("start", "found"), [(1, True), (3, False)])
def test_a_transpose_from_a_scalar_offset_can_skip(start: int, found: bool) -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 2, 3)

    def kernel(a: Any, index: Any) -> Any:
        tile, offset = filled((3, 4), -1.0, a.dtype), load(index)
        view = a.ap([[3, 4], [1, 3]], scalar_offset=offset, indirect_dim=0)
        dma_transpose(dst=tile, src=view, oob_mode=SKIP, dge_mode=nisa.dge_mode.swdge)
        return store(tile)

    wanted = data.reshape(8, 3)[2 * start : 2 * start + 4].T if found else np.full((3, 4), -1.0)
    assert np.array_equal(both(kernel, data, np.array([[start]], np.int32)), wanted)
