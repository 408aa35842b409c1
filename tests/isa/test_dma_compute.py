"""Sums while DMA moves data."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.isa import alu, dma_compute
from tests.isa.examples.dma import gathered
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import shared, store
from tests.support import both

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip


def test_sums_go_from_left_to_right_in_float32_and_round_once() -> None:
    values = [np.float32([[1e8]]), np.float32([[3.0]]), np.float32([[-1e8]]), np.float32([[0.1]])]

    def kernel(a: Any, b: Any, c: Any, d: Any) -> Any:
        out = nl.ndarray((1, 1), np.float32, buffer=nl.shared_hbm)
        dma_compute(out, [a, b, c, d], alu.ADD)
        return out

    total = values[0]
    for value in values[1:]:
        total = np.float32(total + value)
    assert both(kernel, *values) == total


def test_a_sum_of_integers_saturates_after_float32() -> None:
    def kernel(a: Any, b: Any) -> Any:
        tile = load(a)
        dma_compute(tile, [tile, b], alu.ADD)
        return store(tile)

    a, b = np.array([[100, -100, 5, 2]], np.int8), np.array([[100, -100, 6, 1]], np.int8)
    assert both(kernel, a, b).tolist() == [[127, -128, 11, 3]]


@pytest.mark.parametrize("scatter", [True, False])
def test_updates_skip_rows_outside(scatter: bool) -> None:
    table, data = np.arange(8, dtype=np.float32).reshape(4, 2), np.full((3, 2), 10, np.float32)
    rows = np.array([[3], [7], [0]], np.int32)

    def kernel(a: Any, b: Any, r: Any) -> Any:
        target, tile, index = shared(a), load(b), load(r)
        view = gathered(target, index)
        if scatter:
            dma_compute(view, [tile, view], alu.ADD, oob_mode=SKIP)
            return target
        dma_compute(tile, [tile, view], alu.ADD, oob_mode=SKIP)
        return store(tile)

    wanted = [[10, 11], [2, 3], [4, 5], [16, 17]] if scatter else [[16, 17], [10, 10], [10, 11]]
    assert np.array_equal(both(kernel, table, data, rows), wanted)


def test_an_update_rounds_to_the_dtype_of_its_destination() -> None:
    table, data = np.array([[1.0, 256.0]], BF16), np.array([[0.0078125, 1.0]], np.float32)

    def kernel(a: Any, b: Any, r: Any) -> Any:
        target, index = shared(a), load(r)
        view = gathered(target, index)
        dma_compute(view, [view, load(b)], alu.ADD)
        return target

    wanted = (table.astype(np.float32) + data).astype(BF16)
    assert np.array_equal(both(kernel, table, data, np.array([[0]], np.int32)), wanted)


def test_rows_that_repeat_in_an_update_are_reported() -> None:
    def kernel(a: Any, b: Any, r: Any) -> Any:
        target, index = shared(a), load(r)
        view = gathered(target, index)
        dma_compute(view, [view, load(b)], alu.ADD, oob_mode=SKIP)
        return target

    table, data = np.zeros((3, 1), np.float32), np.ones((3, 1), np.float32)
    both(kernel, table, data, np.array([[5], [1], [5]], np.int32))
    with pytest.warns(UserWarning, match=r"dma_compute\.repeated-index"):
        both(kernel, table, data, np.array([[1], [2], [1]], np.int32))


def test_scales_of_one_are_accepted() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        dma_compute(out, (a, a), scales=[1.0, 1], reduce_op=alu.ADD)
        return out

    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert np.array_equal(both(kernel, data), 2 * data)
