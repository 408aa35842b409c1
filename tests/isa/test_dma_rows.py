"""DMA of rows that an index tensor names: gathers, scatters, and rows outside."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.report import NkiWarning
from tests.isa.examples.dma import gathered
from tests.isa.tiles import bits_of, filled, floats, store
from tests.isa.tiles import dma_load as load
from tests.support import both, rejection

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip
QUIET_NAN, SIGNALLING_NAN = 0x7FC01234, 0x7F812345


# --- rows by an index tensor


def gather_kernel(dtype: Any = None, mode: Any = SKIP, fill: float = 7) -> Any:
    def kernel(data: Any, rows: Any) -> Any:
        tile = filled((rows.shape[0], data.shape[1]), fill, dtype or data.dtype)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(data, index), oob_mode=mode)
        return store(tile)

    return kernel


@pytest.mark.parametrize("outside", [-1, 4, 2**31 - 1, -(2**31)])
def test_skipped_rows_of_a_gather_stay_and_integers_keep_their_bits(outside: int) -> None:
    data = np.array([[2**24 + 1, -1], [2**31 - 1, -(2**31)], [3, 4], [5, 16777219]], np.int32)
    rows = np.array([[1], [outside], [3], [0]], np.int32)
    result = both(gather_kernel(), data, rows)
    assert result.tolist() == [data[1].tolist(), [7, 7], data[3].tolist(), data[0].tolist()]


@pytest.mark.parametrize("sentinel", [2**32 - 1, 2])
def test_unsigned_indices_beyond_the_table_are_skipped(sentinel: int) -> None:
    data = floats(QUIET_NAN, SIGNALLING_NAN, 1, 0x80000000).reshape(2, 2)
    result = both(gather_kernel(), data, np.array([[sentinel], [1], [0]], np.uint32))
    assert np.array_equal(bits_of(result), bits_of(np.stack([np.float32([7, 7]), data[1], data[0]])))


def test_a_skipping_gather_casts_through_float32() -> None:
    data = np.array([[1.25, -3.5], [1e9, 2.5]], np.float32)
    result = both(gather_kernel(np.int16), data, np.array([[1], [9], [0]], np.int32))
    assert result.tolist() == [[32767, 2], [7, 7], [1, -4]]


def test_a_gather_of_packed_values_can_skip() -> None:
    words = np.arange(24, dtype=np.uint32).reshape(4, 6) * 0x01020304

    def kernel(data: Any, rows: Any) -> Any:
        table = nl.ndarray((4, 6), dtypes.float8_e4m3fn_x4, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=table.view(dtypes.uint32), src=data)
        tile = filled((3, 6), 0, dtypes.float8_e4m3fn_x4)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(table, index), oob_mode=SKIP)
        return store(tile.view(dtypes.uint32))

    result = both(kernel, words, np.array([[3], [-1], [2]], np.int32))
    assert np.array_equal(result, np.stack([words[3], words[3] * 0, words[2]]))


def test_a_negative_row_is_outside_even_if_the_pattern_starts_late() -> None:
    data = np.arange(8, dtype=np.float32).reshape(4, 2)

    def kernel(a: Any, rows: Any) -> Any:
        tile = filled((2, 2), -1.0, a.dtype)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=a.ap([[2, 2], [1, 2]], offset=4, vector_offset=index), oob_mode=SKIP)
        return store(tile)

    assert both(kernel, data, np.array([[-1], [1]], np.int32)).tolist() == [[-1, -1], [6, 7]]


def long_rows(mode: Any) -> Any:
    def kernel(a: Any, rows: Any) -> Any:
        tile = filled((rows.shape[0], 2), 7, a.dtype)
        view = a.ap([[3, rows.shape[0]], [1, 2]], offset=2, vector_offset=load(rows))
        nisa.dma_copy(dst=tile, src=view, oob_mode=mode)
        return store(tile)

    return kernel


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_of_a_row_that_runs_past_the_end_the_part_inside_is_moved(dtype: Any) -> None:
    data = np.arange(9).reshape(3, 3).astype(dtype)
    with pytest.warns(
        NkiWarning, match=r"access.past-end.* row 0 has index 2 and reaches elements 8 to 9, but a holds 9"
    ):
        result = both(long_rows(SKIP), data, np.array([[2], [1], [3]], np.int32))
    assert result.tolist() == [[8, 7], [5, 6], [7, 7]]


def test_a_row_that_runs_past_the_end_is_an_error_by_default() -> None:
    data = np.arange(9, dtype=np.float32).reshape(3, 3)
    error = rejection(long_rows(nisa.oob_mode.error), data, np.array([[1], [2]], np.int32))
    assert error.code == "access.dynamic-out-of-bounds"
    assert error.message == "row 1 has index 2 and reaches elements 8 to 9, but a holds 9 elements of float32"


def test_a_scatter_writes_the_part_of_a_row_that_is_inside() -> None:
    def kernel(data: Any, rows: Any) -> Any:
        out = nl.ndarray((3, 3), data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=filled(out.shape, 9, data.dtype))
        place = out.ap([[3, 3], [1, 4]], vector_offset=load(rows))
        nisa.dma_copy(dst=place, src=load(data), oob_mode=SKIP)
        return out

    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    with pytest.warns(NkiWarning, match="access.past-end"):
        result = both(kernel, data, np.array([[2], [0], [5]], np.int32))
    assert result.tolist() == [[4, 5, 6], [7, 9, 9], [0, 1, 2]]


def scatter_kernel(mode: Any) -> Any:
    def kernel(data: Any, rows: Any) -> Any:
        out = nl.ndarray((6, data.shape[1]), data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=filled(out.shape, 9, data.dtype))
        index = load(rows)
        nisa.dma_copy(dst=gathered(out, index), src=load(data), oob_mode=mode)
        return out

    return kernel


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint8])
def test_a_scatter_writes_only_rows_inside(dtype: Any) -> None:
    data = np.arange(12).reshape(4, 3).astype(dtype)
    wanted = np.full((6, 3), 9, dtype)
    wanted[5], wanted[0] = data[0], data[2]
    rows = np.array([[5], [6], [0], [-2]], np.int32)
    assert np.array_equal(both(scatter_kernel(SKIP), data, rows), wanted)


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("row", [6, -1])
def test_rows_outside_raise_by_default(scatter: bool, row: int) -> None:
    kernel = scatter_kernel(nisa.oob_mode.error) if scatter else gather_kernel(mode=nisa.oob_mode.error)
    error = rejection(kernel, np.zeros((2 if scatter else 6, 2), np.float32), np.array([[1], [row]], np.int32))
    assert error.code == "access.dynamic-out-of-bounds"
    assert f"row 1 has index {row}," in error.message


def test_more_rows_than_partitions_come_from_a_table_of_three_dimensions() -> None:
    """An index counts rows of the tensor that .ap was called on; the leading stride of the pattern is ignored."""
    data = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)

    def kernel(a: Any, rows: Any) -> Any:
        tile = nl.ndarray((3, 3), a.dtype, buffer=nl.sbuf)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=a.ap([[1, 3], [1, 3]], offset=3, vector_offset=index))
        return store(tile)

    rows = np.array([[4], [0], [2]], np.int32)
    assert np.array_equal(both(kernel, data, rows), np.stack([data[4, 1], data[0, 1], data[2, 1]]))


@pytest.mark.filterwarnings("ignore:.access.repeated-rows.")
def test_the_last_of_repeated_rows_stays() -> None:
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    result = both(scatter_kernel(nisa.oob_mode.error), data, np.array([[2], [2], [1]], np.int32))
    assert result[1:3].tolist() == [[4, 5], [2, 3]]


# --- what was never written


def test_a_gather_reports_rows_that_nobody_wrote() -> None:
    def kernel(data: Any, rows: Any) -> Any:
        table = nl.ndarray((4, 2), data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=table[0:2, :], src=data)
        tile = nl.ndarray((2, 2), data.dtype, buffer=nl.sbuf)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(table, index))
        return store(tile)

    data = np.ones((2, 2), np.float32)
    assert np.all(both(kernel, data, np.array([[1], [0]], np.int32)) == 1)
    with pytest.warns(UserWarning, match=r"memory\.uninitialized"):
        both(kernel, data, np.array([[1], [3]], np.int32))


def test_skipped_rows_do_not_count_as_written() -> None:
    def kernel(data: Any, rows: Any) -> Any:
        tile = nl.ndarray((2, 2), data.dtype, buffer=nl.sbuf)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(data, index), oob_mode=SKIP)
        return store(tile)

    data = np.ones((2, 2), np.float32)
    with pytest.warns(UserWarning, match=r"memory\.uninitialized"):
        assert np.isnan(both(kernel, data, np.array([[1], [3]], np.int32))[1]).all()
