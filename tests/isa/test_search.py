"""Values of max8, nc_find_index8, nc_match_replace8, nonzero_with_count and topk beyond their examples."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as family
import nki.language as nl
from nki.isa.dma import dma_copy
from nki.isa.search import largest
from tests.isa.tiles import filled, load, store
from tests.support import both, rejection

INF, NAN = float("inf"), float("nan")


def max8_of(a: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    def kernel(a: Any) -> Any:
        result = nl.ndarray((a.shape[0], 8), dtype, buffer=nl.sbuf)
        family.max8(result, load(a))
        return store(result)

    return np.asarray(both(kernel, a))


def find_of(data: Any, vals: Any, dtype: Any = np.uint32) -> Any:
    def kernel(data: Any, vals: Any) -> Any:
        result = nl.ndarray((data.shape[0], 8), dtype, buffer=nl.sbuf)
        family.nc_find_index8(result, load(data), load(vals))
        return store(result)

    return both(kernel, np.array(data, np.float32), np.array(vals, np.float32))


def replace_of(data: Any, vals: Any, imm: float = 0.0, dtype: Any = np.uint32) -> Any:
    def kernel(data: Any, vals: Any) -> Any:
        tile, result = load(data), nl.ndarray((data.shape[0], 8), dtype, buffer=nl.sbuf)
        family.nc_match_replace8(tile, tile, load(vals), imm, result)
        return store(tile), store(result)

    return both(kernel, np.array(data, np.float32), np.array(vals, np.float32))


# --- max8


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=8, max_size=40))
def test_max8_agrees_with_torch(row: list[float]) -> None:
    data = np.array([row], np.float32)
    wanted = torch.topk(torch.from_numpy(data), 8).values.numpy()
    np.testing.assert_array_equal(max8_of(data), wanted)


@pytest.mark.parametrize("columns", [8, 799, 800, 1025, 8192, 16384])
@pytest.mark.parametrize("different", [2, 300, 1 << 23])
def test_max8_of_long_rows_agrees_with_sorting(columns: int, different: int) -> None:
    random = np.random.default_rng(columns)
    data = random.integers(-different, different, (5, columns)).astype(np.float32)
    data[1] = np.sort(data[1])
    data[2] = np.sort(data[2])[::-1]
    data[3, :9] = 2.0**24  # side by side
    data[4] = -np.inf
    np.testing.assert_array_equal(max8_of(data), np.sort(data, axis=1)[:, : -8 - 1 : -1])


@pytest.mark.parametrize("count", [1, 8, 100])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_the_largest_keys_are_found_group_by_group(count: int, dtype: Any) -> None:
    top = np.iinfo(dtype).max
    keys = np.random.default_rng(count).integers(0, top, (4, 10_007), dtype, endpoint=True)
    keys[1] %= 3
    keys[2, -3:] = top  # what is left over when a row is dealt out
    keys[3, : 2 * count] = top  # as many as are wanted, and more
    np.testing.assert_array_equal(largest(keys, count), np.sort(keys, axis=1)[:, -count:])


def test_max8_keeps_duplicates_and_puts_nan_first() -> None:
    assert max8_of(np.full((2, 8), 3.5, np.float32)).tolist() == [[3.5] * 8] * 2
    row = [1, -INF, NAN, INF, 2, 2, -0.0, 0.0, -1, -1e-45]
    got = max8_of(np.array([row], np.float32))[0]
    np.testing.assert_array_equal(got, [NAN, INF, 2, 2, 1, 0, 0, np.float32(-1e-45)])
    assert np.signbit(got).tolist() == [False] * 6 + [True, True]


def test_max8_compares_as_float32_and_rounds_to_the_destination() -> None:
    row = np.array([[2**24 + 1, 2**24, 5, 4, 3, 2, 1, 0]], np.int32)
    assert max8_of(row, np.int32)[0, :2].tolist() == [2**24, 2**24]
    got = max8_of(np.array([[300.0, 2.5, 1.5, 0.5, -1, -2, -3, -4]], np.float32), np.uint8)
    assert got.tolist() == [[255, 2, 2, 0, 0, 0, 0, 0]]


def test_the_limits_of_max8_are_the_documented_ones() -> None:
    assert max8_of(np.ones((1, 16384), np.float32)).tolist() == [[1] * 8]
    error = rejection(lambda a: family.max8(filled((1, 8)), load(a)), np.ones((1, 16385), np.float32))
    assert error.code == "max8.size" and "16384" in error.rule


# --- nc_find_index8 and nc_match_replace8


def test_duplicate_values_find_ascending_positions() -> None:
    data = [[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]]
    assert find_of(data, [[3, 8, 8, 8, 8, 8, 8, 8]]).tolist() == [[2, 4, 5, 6, 7, 8, 9, 10]]
    assert find_of(data, [[8, 3, 8, 8, 1, 8, 2, 8]]).tolist() == [[4, 2, 5, 6, 0, 7, 1, 8]]


@pytest.mark.parametrize(("dtype", "missing"), [(np.uint16, 0xFFFF), (np.uint32, 0xFFFFFFFF)])
def test_values_that_do_not_occur_have_an_index_of_all_ones(dtype: Any, missing: int) -> None:
    data, vals = [[7, 1, 7, 2, 3, 4, 5, 6]], [[7, 7, 7, 9, NAN, INF, 1, 0.5]]
    assert find_of(data, vals, dtype).tolist() == [[0, 2, missing, missing, missing, missing, 1, missing]]
    got, index = replace_of(data, vals, -1.0, dtype)
    assert index.tolist() == [[missing, 2, 0, missing, missing, missing, 1, missing]]
    assert got.tolist() == [[-1, -1, -1, 2, 3, 4, 5, 6]]


def test_duplicate_values_replace_in_reverse_slot_order() -> None:
    got, index = replace_of([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], [[3, 8, 8, 8, 8, 8, 8, 8]])
    assert index.tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    assert got.tolist() == [[1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0]]


def test_a_replaced_position_is_not_matched_again() -> None:
    # slot 7 replaces the 5 by 6; the 6 of slot 0 is the one that was there before
    got, index = replace_of([[5, 6, 1, 2, 3, 4, 9, 9]], [[6, 50, 50, 50, 50, 50, 50, 5]], 6.0)
    assert (index[0, 0], index[0, 7]) == (1, 0)
    assert got.tolist() == [[6, 6, 1, 2, 3, 4, 9, 9]]


def test_zeros_of_both_signs_match_and_nan_never_does() -> None:
    data = np.array([[-0.0, 0.0, NAN, INF, -INF, 1, 2, 3]], np.float32)
    missing = 0xFFFFFFFF
    assert find_of(data, [[0.0, -0.0, NAN, NAN, -INF, INF, 0.0, 3]]).tolist() == [
        [0, 1, missing, missing, 4, 3, missing, 7]
    ]
    got, _ = replace_of(data, [[9, 9, 9, 9, 9, 9, 9, 3]])
    np.testing.assert_array_equal(got[0, :7].view(np.uint32), data[0, :7].view(np.uint32))


def test_eight_rounds_of_search_and_replace_sort_a_row() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        best = nl.ndarray((a.shape[0], 32), np.float32, buffer=nl.sbuf)
        where = nl.ndarray((a.shape[0], 32), np.uint32, buffer=nl.sbuf)
        for start in range(0, 32, 8):
            family.max8(best[:, start : start + 8], tile)
            family.nc_match_replace8(tile, tile, best[:, start : start + 8], -INF, where[:, start : start + 8])
        return store(best), store(where)

    data = np.random.default_rng(4).permutation(5 * 40).reshape(5, 40).astype(np.float32)
    best, where = both(kernel, data)
    wanted = torch.topk(torch.from_numpy(data), 32)
    np.testing.assert_array_equal(best, wanted.values.numpy())
    np.testing.assert_array_equal(where, wanted.indices.numpy())


def test_one_value_may_be_broadcast_to_all_slots() -> None:
    def kernel(a: Any) -> Any:
        tile, result = load(a), nl.ndarray((2, 8), np.uint32, buffer=nl.sbuf)
        family.nc_find_index8(result, tile, tile[:, 3:4].broadcast(1, 8))
        return store(result)

    got = both(kernel, np.array([[1, 5, 5, 5, 2, 2, 2, 2], [3, 4, 5, 6, 7, 8, 9, 6]], np.float32))
    missing = [0xFFFFFFFF] * 5
    assert got.tolist() == [[1, 2, 3, *missing], [3, 7, 0xFFFFFFFF, *missing]]


def test_what_is_not_replaced_keeps_its_bits() -> None:
    def kernel(a: Any, vals: Any) -> Any:
        tile = load(a)
        family.nc_match_replace8(tile, tile, load(vals), 1.5)
        return store(tile)

    data = np.array([[2**31 - 1, 2**24 + 1, 7, -(2**31), 0, 1, 2, 3]], np.int32)
    got = both(kernel, data, np.full((1, 8), 7, np.int32))
    assert got.tolist() == [[2**31 - 1, 2**24 + 1, 2, -(2**31), 0, 1, 2, 3]]


# --- nonzero_with_count


def nonzero_of(a: np.ndarray, **options: Any) -> Any:
    def kernel(a: Any) -> Any:
        result = filled((a.shape[0], a.shape[1] + 1), 42, np.int32)
        family.nonzero_with_count(result, load(a), **options)
        return store(result)

    return both(kernel, a)


def test_nonzero_with_count_gives_the_documented_example() -> None:
    got = nonzero_of(np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32), index_offset=16)
    assert got.tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]


def test_nan_is_not_zero_and_negative_zero_is() -> None:
    got = nonzero_of(np.array([[NAN, -0.0, 1e-45, 0.0, -INF]], np.float32))
    assert got.tolist() == [[0, 2, 4, -1, -1, 3]]


def test_all_and_no_elements_may_be_nonzero() -> None:
    assert nonzero_of(np.ones((1, 3), np.int32)).tolist() == [[0, 1, 2, 3]]
    assert nonzero_of(np.zeros((1, 3), np.float32), padding_val=9).tolist() == [[9, 9, 9, 0]]


def test_only_every_16th_partition_is_read_and_written() -> None:
    def kernel(a: Any) -> Any:
        src = nl.ndarray((64, 4), np.float32, buffer=nl.sbuf)
        for partition in (0, 32):  # reading another partition would be reported as uninitialised
            dma_copy(dst=src[partition : partition + 1], src=a)
        dma_copy(dst=src[16:17], src=a)
        dma_copy(dst=src[48:49], src=a)
        result = filled((64, 5), 42, np.int32)
        family.nonzero_with_count(result, src)
        return store(result)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = both(kernel, np.array([[0, 3, 0, 4]], np.float32))
    assert got[::16].tolist() == [[1, 3, -1, -1, 2]] * 4
    assert (np.delete(got, range(0, 64, 16), axis=0) == 42).all()


# --- topk


def topk_of(snakes: np.ndarray, k: int, columns: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Load rows as snakes, search, and read the results as snakes: ``(rows, k)`` each."""
    rows, n = snakes.shape
    width = columns or -(-n // 16)
    src = np.zeros((rows * 16, width), ml_dtypes.bfloat16)
    for row in range(rows):
        for i in range(n):
            src[16 * row + i % 16, i // 16] = snakes[row, i]

    def kernel(a: Any) -> Any:
        val, idx = filled((rows * 16, k), dtype=ml_dtypes.bfloat16), filled((rows * 16, k), dtype=np.uint32)
        family.topk(val, idx, load(a), n)
        return store(val), store(idx)

    val, idx = both(kernel, src)
    read = lambda tile: np.array([[tile[16 * r + j % 16, j // 16] for j in range(k)] for r in range(rows)])  # noqa: E731
    return read(val), read(idx)


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 8), n=st.integers(8, 90), data=st.data())
def test_topk_agrees_with_torch_for_every_group(rows: int, n: int, data: Any) -> None:
    k = data.draw(st.integers(1, n))
    seed = data.draw(st.integers(0, 999))
    snakes = np.random.default_rng(seed).integers(-20, 20, (rows, n)).astype(ml_dtypes.bfloat16)
    val, idx = topk_of(snakes, k)
    wanted = torch.topk(torch.from_numpy(snakes.astype(np.float32)), k).values.numpy()
    np.testing.assert_array_equal(val.astype(np.float32), wanted[:, ::-1])
    for row in range(rows):
        assert len(set(idx[row].tolist())) == k
        np.testing.assert_array_equal(snakes[row, idx[row]], val[row])


def test_topk_takes_the_lower_of_equal_positions_and_nan_above_all() -> None:
    row = np.array([[1, NAN, 1, -INF, 1, INF, 0, -0.0, 2]], ml_dtypes.bfloat16)
    val, idx = topk_of(row, 5)
    np.testing.assert_array_equal(val.astype(np.float32), [[1, 1, 2, INF, NAN]])
    assert idx.tolist() == [[2, 0, 8, 5, 1]]


def test_topk_ignores_what_lies_beyond_n() -> None:
    def kernel(a: Any) -> Any:
        src = nl.ndarray((16, 4), ml_dtypes.bfloat16, buffer=nl.sbuf)
        dma_copy(dst=src[:, 0:1], src=a)  # reading the other columns would be reported as uninitialised
        val, idx = filled((16, 3), dtype=ml_dtypes.bfloat16), filled((16, 3), dtype=np.uint32)
        family.topk(val, idx, src, 10)
        return store(val), store(idx)

    val, idx = both(kernel, np.arange(16).reshape(16, 1).astype(ml_dtypes.bfloat16))
    assert val[:3, 0].astype(int).tolist() == idx[:3, 0].tolist() == [7, 8, 9]
    assert not val[3:].any() and not val[:, 1:].any()


@pytest.mark.parametrize("instruction", ["nonzero_with_count", "topk"])
def test_gpsimd_searches_do_not_exist_everywhere(instruction: str) -> None:
    def kernel(a: Any) -> None:
        if instruction == "topk":
            tile = filled((16, 8), dtype=ml_dtypes.bfloat16)
            family.topk(tile, filled((16, 8), dtype=np.uint32), tile, 8)
        else:
            family.nonzero_with_count(filled((16, 9), dtype=np.int32), filled((16, 8), dtype=np.int32))

    assert rejection(kernel, np.zeros((1, 1), np.float32), target="trn1").code == "instruction.unavailable"
