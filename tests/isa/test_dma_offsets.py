"""DMA at an address that one number shifts while the kernel runs, and in tensors that the kernel placed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.isa.register import register_alloc
from tests.isa.examples.dma import gathered
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled, shared, store
from tests.support import both, rejection

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip


# --- scalar offsets


def scalar_kernel(by_register: bool, mode: Any = nisa.oob_mode.error, dim: int = 1) -> Any:
    def kernel(data: Any, start: Any) -> Any:
        tile = filled((2, 3), -1, data.dtype)
        index = load(start)
        offset = register_alloc(index) if by_register else index
        view = data.ap([[4, 2], [1, 3]], offset=1, scalar_offset=offset, indirect_dim=dim)
        nisa.dma_copy(dst=tile, src=view, oob_mode=mode)
        return store(tile)

    return kernel


@pytest.mark.parametrize("by_register", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_scalar_offset_steps_along_a_dimension_of_the_base(by_register: bool, dim: int) -> None:
    data = np.arange(3 * 5 * 4, dtype=np.int32).reshape(3, 5, 4)
    start = 1 + 2 * (20, 4, 1)[dim]
    wanted = [[start + 4 * i + j for j in range(3)] for i in range(2)]
    assert both(scalar_kernel(by_register, dim=dim), data, np.array([[2]], np.int32)).tolist() == wanted


@pytest.mark.parametrize("by_register", [False, True])
@pytest.mark.parametrize(("dtype", "start"), [(np.uint32, 2**32 - 1), (np.int32, 14), (np.int32, -1)])
def test_a_scalar_offset_outside_raises_or_copies_nothing(by_register: bool, dtype: Any, start: int) -> None:
    data, index = np.arange(60, dtype=np.float32).reshape(3, 5, 4), np.array([[start]], dtype)
    assert np.all(both(scalar_kernel(by_register, SKIP), data, index) == -1)
    error = rejection(scalar_kernel(by_register), data, index)
    assert error.code == "access.dynamic-out-of-bounds"


def test_a_skipped_destination_leaves_everything() -> None:
    def kernel(data: Any, start: Any) -> Any:
        out = shared(data)
        index = load(start)
        nisa.dma_copy(dst=out.select(0, index), src=load(data)[0:1, :], oob_mode=SKIP)
        return out

    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert np.array_equal(both(kernel, data, np.array([[4]], np.int32)), data)


def test_offsets_scale_with_the_size_of_a_reinterpreted_element() -> None:
    def kernel(data: Any, start: Any) -> Any:
        tile = nl.ndarray((1, 8), dtypes.uint8, buffer=nl.sbuf)
        index = load(start)
        view = data.ap([[8, 1], [1, 8]], scalar_offset=index, indirect_dim=0, dtype=dtypes.uint8)
        nisa.dma_copy(dst=tile, src=view)
        return store(tile)

    data = np.arange(8, dtype=np.int32).reshape(4, 2) * 257
    result = both(kernel, data, np.array([[3]], np.int32))
    assert result.tobytes() == data[3].tobytes()


def test_a_free_offset_does_not_leave_the_partition() -> None:
    """On chip, the element behind the end of a row is in another tensor, not in the next partition."""

    def kernel(data: Any, start: Any) -> Any:
        tile, index = load(data), load(start)
        part = nl.ndarray((2, 3), data.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=tile.ap([[8, 2], [1, 3]], scalar_offset=index, indirect_dim=1))
        return store(part)

    data = np.arange(32, dtype=np.float32).reshape(4, 8)
    assert np.array_equal(both(kernel, data, np.array([[5]], np.int32)), data[:2, 5:8])
    assert rejection(kernel, data, np.array([[6]], np.int32)).code == "access.dynamic-out-of-bounds"


# --- the same addressing in tensors with an explicit address


def test_tensors_with_an_explicit_address_are_addressed_like_others() -> None:
    """Offsets on the free dimension, read and written, and rows by an index, all in tensors that the kernel placed."""

    def kernel(a: Any, offsets: Any, rows: Any) -> Any:
        table = nl.ndarray((16, 8), a.dtype, buffer=nl.sbuf, address=(32, 1024))
        nisa.dma_copy(dst=table, src=a)
        index = nl.ndarray((16, 1), np.uint16, buffer=nl.sbuf, address=(32, 0))
        nisa.dma_copy(dst=index, src=offsets)
        taken = nl.ndarray((16, 16), a.dtype, buffer=nl.sbuf, address=(32, 4096))
        nisa.memset(dst=taken, value=0.0)
        nisa.tensor_copy(dst=taken[:, 0:5], src=table.indirect(index, 5))
        nisa.tensor_copy(dst=taken[:, 8:16].indirect(index, 3), src=table[:, 0:3])
        number = nl.ndarray((2, 1), np.int32, buffer=nl.sbuf, address=(0, 64))
        nisa.dma_copy(dst=number, src=rows)
        first = nl.ndarray((2, 8), a.dtype, buffer=nl.sbuf, address=(64, 0))
        nisa.dma_copy(dst=first, src=gathered(a, number))
        return store(taken), store(first)

    data = np.arange(128, dtype=np.float32).reshape(16, 8)
    offsets = np.array([[i * 3 % 8] for i in range(16)], np.uint16)
    taken, first = both(kernel, data, offsets, np.array([[9], [4]], np.int32), target="trn3")
    wanted = np.zeros((16, 16), np.float32)
    for p in range(16):
        for i in range(5):
            wanted[p, i] = data[p, offsets[i, 0]]
        for i in range(3):
            wanted[p, 8 + offsets[i, 0]] = data[p, i]
    assert np.array_equal(taken, wanted) and np.array_equal(first, data[[9, 4]])
