"""nc_stream_shuffle beyond its examples: quadrants, kept partitions, bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.isa.shuffle import nc_stream_shuffle
from tests.isa.tiles import bits_of, filled, floats, simulate, store
from tests.isa.tiles import dma_load as load
from tests.support import both

BF16 = ml_dtypes.bfloat16


@given(
    st.lists(st.one_of(st.integers(0, 31), st.just(255)), min_size=32, max_size=32),
    st.sampled_from([32, 64, 96, 128]),
    st.sampled_from([np.float32, np.int32, BF16]),
    st.sampled_from([nl.sbuf, nl.psum]),
)
def test_one_mask_serves_every_quadrant(mask: list[int], rows: int, dtype: Any, buffer: Any) -> None:
    a, b = (np.random.default_rng(i).integers(-99, 99, (rows, 3)).astype(dtype) for i in (1, 2))

    def kernel(x: Any, y: Any) -> Any:
        tile = nl.ndarray(y.shape, y.dtype, buffer=buffer)
        nisa.tensor_copy(dst=tile, src=load(y))
        nc_stream_shuffle(dst=tile, src=load(x), shuffle_mask=mask)
        last = nl.ndarray(y.shape, y.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=last, src=tile)
        return store(last)

    result = both(kernel, a, b)
    for i in range(rows):
        kept = mask[i % 32] == 255
        assert np.array_equal(result[i], b[i] if kept else a[i - i % 32 + mask[i % 32]])


def test_shuffles_move_bits_between_views_of_different_rank() -> None:
    data = np.zeros((32, 6), np.float32)
    data[5] = floats(0x7FC01234, 0x7F812345, 0x80000000, 1, 0xFFC00001, 0x7F800000)

    def kernel(a: Any) -> Any:
        tile = filled((32, 2, 8), 0.0, a.dtype)
        nc_stream_shuffle(dst=tile[:, :, 1:7:2], src=load(a), shuffle_mask=[5] * 32)
        return store(tile)

    wanted = np.zeros((32, 2, 8), np.float32)
    wanted[:, :, 1:7:2] = data[5].reshape(2, 3)
    assert np.array_equal(bits_of(both(kernel, data)), bits_of(wanted))


def test_in_place_takes_the_old_values() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        nc_stream_shuffle(tile, tile, [i ^ 1 for i in range(32)])
        return store(tile)

    data = np.arange(96, dtype=np.float32).reshape(96, 1)
    assert both(kernel, data).ravel().tolist() == [float(i ^ 1) for i in range(96)]


def test_a_short_destination_reads_only_its_own_entries_of_the_mask() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((3, 1), a.dtype, buffer=nl.sbuf)
        nc_stream_shuffle(tile, load(a), [1, 0, 1, *[31] * 29])
        return store(tile)

    assert both(kernel, np.float32([[4], [5]])).ravel().tolist() == [5, 4, 5]


def test_kept_partitions_do_not_count_as_written() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((32, 1), a.dtype, buffer=nl.sbuf)
        nc_stream_shuffle(tile, load(a), [255, *range(1, 32)])
        return store(tile)

    with pytest.warns(UserWarning, match=r"memory\.uninitialized"):
        result = both(kernel, np.ones((32, 1), np.float32))
    assert np.isnan(result[0, 0]) and np.all(result[1:] == 1)


@pytest.mark.parametrize("precise", [True, False])
def test_low_precision_keeps_what_it_holds(precise: bool) -> None:
    data = (1 + np.arange(32, dtype=np.float32).reshape(32, 1) / 1000).astype(np.float32)

    def kernel(a: Any) -> Any:
        tile = load(a, BF16)
        nc_stream_shuffle(tile, tile, list(range(31, -1, -1)))
        return store(load(store(tile), np.float32))

    wanted = data[::-1].astype(BF16).astype(np.float32) if precise else data[::-1]
    assert np.array_equal(simulate(kernel, data, precise=precise), wanted)
