"""The four corrections of the simulator of NKI 0.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled, store
from tests.support import both


@pytest.mark.parametrize("dtype", [nl.float8_e4m3fn_x4, nl.float8_e5m2_x4], ids=str)
def test_skipped_rows_of_packed_dtypes(dtype: Any) -> None:
    def kernel(words: Any, rows: Any) -> Any:
        table = nl.ndarray(words.shape, dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=table.view(nl.uint32), src=words)
        tile, index = filled((4, 3), 0, dtype), load(rows)
        nisa.dma_copy(dst=tile, src=table.ap([[3, 4], [1, 3]], vector_offset=index), oob_mode=nisa.oob_mode.skip)
        return store(tile.view(nl.uint32))

    words = np.random.default_rng(1).integers(0, 2**32, (5, 3), np.uint32)
    got = both(kernel, words, np.array([[4], [5], [-1], [0]], np.int32), target="trn3")
    np.testing.assert_array_equal(got, np.stack([words[4], words[0] * 0, words[0] * 0, words[0]]))


def test_matmul_of_a_convolution() -> None:
    """A 3 x 3 convolution: nine products of shifted windows, accumulated in PSUM."""

    def kernel(image: Any, filters: Any) -> Any:
        pixels, weights = load(image), load(filters)
        total = nl.ndarray((6, 8, 5), np.float32, buffer=nl.psum)
        for y in range(3):
            for x in range(3):
                nisa.nc_matmul(total, weights[:, y, x, :], pixels[:, y : y + 8, x : x + 5])
        out = nl.ndarray(total.shape, np.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
        return store(out)

    r = np.random.default_rng(2)
    image, filters = r.integers(-4, 5, (4, 10, 7)), r.integers(-4, 5, (4, 3, 3, 6))
    wanted = np.zeros((6, 8, 5))
    for row in range(8):
        for column in range(5):
            window = image[:, row : row + 3, column : column + 3]
            wanted[:, row, column] = np.tensordot(filters, window, axes=((0, 1, 2), (0, 1, 2)))
    np.testing.assert_array_equal(both(kernel, image.astype(np.float32), filters.astype(np.float32)), wanted)


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("spelling", ["function", "statement"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_while_loop_ends(count: int, spelling: str) -> None:
    def kernel(n: Any) -> Any:
        left, trips = load(n), filled((1, 1), 0, np.int32)
        register = nisa.register_alloc()
        nisa.register_load(register, left)

        def body() -> None:
            nisa.tensor_scalar(trips, trips, nl.add, 1.0)
            nisa.tensor_scalar(left, left, nl.subtract, 1.0)

        def again(condition: Any) -> Any:
            body()
            nisa.register_load(condition, left)
            return condition

        if spelling == "function":
            nl.while_loop(register, again)
        else:
            while register:
                body()
                nisa.register_load(register, left)
        return store(trips), store(left)

    trips, left = both(kernel, np.array([[count]], np.int32))
    assert (trips[0, 0], left[0, 0]) == (count, 0)


def test_gather_transpose_keeps_rows_outside() -> None:
    def kernel(table: Any, rows: Any) -> Any:
        tile, index = filled((5, 16), -7.0, table.dtype), load(rows)
        nisa.dma_transpose(dst=tile, src=table.vector_select(0, index), oob_mode=nisa.oob_mode.skip)
        return store(tile)

    table = np.random.default_rng(3).standard_normal((9, 5)).astype(np.float16)
    rows = np.array([[i if i % 4 else 1000] for i in range(16)], np.uint32)
    wanted = np.full((5, 16), -7.0, np.float16)
    for column, (row,) in enumerate(rows):
        if row < 9:
            wanted[:, column] = table[row]
    np.testing.assert_array_equal(both(kernel, table, rows), wanted)
