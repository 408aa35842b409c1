"""Views on chip: patterns, dimensions that stay, and partitions that may be a start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled, store
from tests.support import both, rejection

X = np.arange(8 * 24, dtype=np.float32).reshape(8, 24)


def test_a_pattern_replaces_the_view() -> None:
    """Shape and strides of the view do not count, its start does; the first stride is one partition of the storage."""

    def kernel(a: Any) -> Any:
        tile = load(a)
        pattern = [[24, 8], [6, 3], [1, 2]]
        whole = tile.ap(pattern, offset=5)
        part = tile[:, 4:20:4].ap(pattern, offset=1)  # starts at element 4
        return store(nl.copy(whole)), store(nl.copy(part))

    def narrow(a: Any) -> Any:
        return store(nl.copy(load(a)[:, 0:12].ap([[12, 8], [1, 12]])))

    wanted = np.stack([X[:, 5 + 6 * i : 7 + 6 * i] for i in range(3)], axis=1)
    for got in both(kernel, X):
        np.testing.assert_array_equal(got, wanted)
    error = rejection(narrow, X)
    assert error.code == "access.partition-stride"
    assert "24" in error.fix


def test_indexing_on_chip_keeps_two_dimensions() -> None:
    shapes: list[Any] = []

    def kernel(a: Any) -> Any:
        tile = load(a).reshape((8, 4, 6))
        views = [tile[3], tile[3, 2], tile[3, 2, 1], tile[:, 2, 1], tile[:, 2], a[3], a[3, 4:6]]
        shapes.append([view.shape for view in views])
        out = nl.ndarray((1, 1), a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile[3, 2, 1])
        return out

    assert both(kernel, X).tolist() == [[X.reshape(8, 4, 6)[3, 2, 1]]]
    wanted = [(1, 4, 6), (1, 6), (1, 1), (8, 1), (8, 6), (24,), (2,)]
    assert all(each == wanted for each in shapes)


STARTS = {1: (0, 32, 64, 96), 32: (0, 32, 64, 96), 33: (0, 64), 64: (0, 64), 65: (0,), 128: (0,)}


@pytest.mark.parametrize("count", STARTS)
def test_start_partitions(count: int) -> None:
    def filler(start: int) -> Any:
        def kernel(_: Any) -> Any:
            tile = filled((128, 2), 0.0)
            nisa.memset(tile[start : start + count], 1.0)
            return store(tile)

        return kernel

    for start in range(0, 129 - count, 16):
        if start in STARTS[count]:
            wanted = np.zeros((128, 2), np.float32)
            wanted[start : start + count] = 1
            np.testing.assert_array_equal(both(filler(start), X), wanted)
        else:
            assert rejection(filler(start), X).code == "operand.start-partition"


def test_partitions_are_not_skipped() -> None:
    def on_chip(a: Any) -> Any:
        return store(nl.copy(load(a)[0:8:2]))

    def in_memory(a: Any) -> Any:
        return store(nl.load(a[0:8:2]))

    assert rejection(on_chip, X).code == "access.partition-step"
    np.testing.assert_array_equal(both(in_memory, X), X[0:8:2])
