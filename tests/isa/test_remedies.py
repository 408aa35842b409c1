"""Fixes of shapes that do not fit: they speak of these operands, and what they say works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from tests.support import environment

A = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)
ROW = np.arange(8, dtype=np.float32).reshape(1, 8)


def loaded(src: Any) -> Any:
    tile = nl.ndarray(src.shape, src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def row_as_it_is(a: Any, row: Any) -> Any:
    x = loaded(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=loaded(row), op=nl.multiply)
    return stored(x)


def row_in_all_partitions(a: Any, row: Any) -> Any:
    x = loaded(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=loaded(row.broadcast(0, 128)), op=nl.multiply)
    return stored(x)


def column_as_it_is(a: Any, row: Any) -> Any:
    x = loaded(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=loaded(a[:, 1:2]), op=nl.multiply)
    return stored(x)


def column_as_operand(a: Any, row: Any) -> Any:
    x = loaded(a)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=loaded(a[:, 1:2]))
    return stored(x)


def one_for_all(a: Any, row: Any) -> Any:
    x = loaded(a)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=loaded(row[:, 3:4]))
    return stored(x)


def one_in_all_partitions(a: Any, row: Any) -> Any:
    x = loaded(a)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=loaded(row[:, 3:4].broadcast(0, 128)))
    return stored(x)


def in_device_memory(a: Any, row: Any) -> Any:
    x = loaded(a)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=row[:, 3:4])
    return stored(x)


def by_a_pattern(a: Any, row: Any) -> Any:
    x = loaded(a)
    one = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=one, src=row[:, 3:4].ap(pattern=[[0, 128], [1, 1]]))
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=one)
    return stored(x)


@pytest.mark.parametrize(
    ("wrong", "right", "fix", "wanted"),
    [
        (row_as_it_is, row_in_all_partitions, "data2 is one row: write nl.broadcast_to(data2, (128, 8))", A * ROW),
        (column_as_it_is, column_as_operand, "data2 is one column: write data2.broadcast(1, 8)", A * A[:, 1:2]),
        (one_for_all, one_in_all_partitions, "pass a Python number, or load it into a tile of (128, 1)", A * 3),
        (in_device_memory, by_a_pattern, "call the kernel with a Python number", A * 3),
    ],
)
def test_operands_that_are_broadcast(wrong: Callable[..., Any], right: Any, fix: str, wanted: np.ndarray) -> None:
    with pytest.raises(NkiError) as caught:
        nki.jit(wrong)(A, ROW)
    assert caught.value.fix.startswith(fix)
    np.testing.assert_array_equal(nki.jit(right)(A, ROW), wanted)


@pytest.mark.parametrize(("stationary", "moving", "exchange"), [(256, 64, True), (256, 256, False), (1024, 64, False)])
def test_operands_that_are_exchanged(stationary: int, moving: int, exchange: bool) -> None:
    def kernel(a: Any, b: Any) -> Any:
        psum = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=psum, stationary=loaded(a), moving=loaded(b))

    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="trn2"), pytest.raises(NkiError) as caught:
        nki.jit(kernel)(np.ones((16, stationary), np.float32), np.ones((16, moving), np.float32))
    assert caught.value.code == "nc_matmul.stationary-size"
    assert ("exchange stationary and moving" in caught.value.fix) is exchange
