"""local_gather and nc_n_gather beyond their examples: bits, views, indices outside, low precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.isa.gather import local_gather, nc_n_gather
from tests.isa.tiles import bits_of, filled, floats, simulate, store
from tests.isa.tiles import dma_load as load
from tests.support import both, rejection

BF16 = ml_dtypes.bfloat16


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([np.float32, np.int32, np.uint8, BF16]),
    st.data(),
)
def test_every_group_gathers_its_own_list(groups: int, columns: int, run: int, dtype: Any, data: Any) -> None:
    valid = data.draw(st.integers(1, 16 * columns))
    width = data.draw(st.integers(run, 40))
    r = np.random.default_rng(width)
    table = r.integers(0, 250, (16 * groups, width)).astype(dtype)
    index = r.integers(0, width - run + 1, (16 * groups, columns)).astype(np.uint16)

    def kernel(a: Any, i: Any) -> Any:
        tile = nl.ndarray((16 * groups, valid, run), a.dtype, buffer=nl.sbuf)
        local_gather(tile, load(a), load(i), num_elem_per_idx=run, num_valid_indices=valid)
        return store(tile)

    result = both(kernel, table, index)
    for group in range(groups):
        names = index[16 * group : 16 * group + 16].flatten(order="F")[:valid]
        for partition in range(16 * group, 16 * group + 16):
            wanted = [table[partition, name : name + run] for name in names]
            assert np.array_equal(result[partition], np.stack(wanted))


def test_gathers_move_bits() -> None:
    data = np.tile(floats(0x7FC01234, 0x7F812345, 0x80000000, 1), (16, 1))

    def kernel(a: Any, names: Any, offsets: Any) -> Any:
        tile, first, second = load(a), filled((16, 16), 0.0, a.dtype), filled((16, 4), 0.0, a.dtype)
        local_gather(first, tile, load(names))
        nc_n_gather(second, tile, load(offsets))
        return store(first), store(second)

    names = np.arange(16, dtype=np.uint16).reshape(16, 1) % 4
    offsets = np.tile(np.array([3, 2, 1, 0], np.uint32), (16, 1))
    first, second = both(kernel, data, names, offsets)
    assert np.array_equal(bits_of(first), bits_of(np.tile(data, 4)))
    assert np.array_equal(bits_of(second), bits_of(data[:, ::-1]))


def test_packed_values_can_be_gathered() -> None:
    words = np.arange(32, dtype=np.uint32).reshape(16, 2) * 0x01030507

    def kernel(a: Any, offsets: Any) -> Any:
        tile = nl.ndarray((16, 2), dtypes.float8_e5m2_x4, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile.view(dtypes.uint32), src=a)
        out = nl.ndarray((16, 3), dtypes.float8_e5m2_x4, buffer=nl.sbuf)
        nc_n_gather(dst=out, data=tile, indices=load(offsets))
        return store(out.view(dtypes.uint32))

    offsets = np.tile(np.array([1, 0, 1], np.uint32), (16, 1))
    assert np.array_equal(both(kernel, words, offsets), words[:, [1, 0, 1]])


def test_free_dimensions_are_flattened_in_the_order_of_the_view() -> None:
    data = np.arange(32 * 12, dtype=np.float32).reshape(32, 3, 4)

    def kernel(a: Any, offsets: Any) -> Any:
        out = nl.ndarray((32, 2, 3), a.dtype, buffer=nl.sbuf)
        nc_n_gather(dst=out.permute((0, 2, 1)), data=load(a)[:, 1:3, 0:4:2], indices=load(offsets))
        return store(out)

    offsets = np.random.default_rng(0).integers(0, 4, (32, 6)).astype(np.uint32)
    result = both(kernel, data, offsets)
    for p in range(32):
        flat = [data[p, 1, 0], data[p, 1, 2], data[p, 2, 0], data[p, 2, 2]]
        for i in range(6):
            assert result[p, i % 2, i // 2] == flat[offsets[p, i]]


@pytest.mark.parametrize("index", [8, 65535])
def test_an_index_beyond_the_partition_is_reported(index: int) -> None:
    data = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)

    def local(a: Any, names: Any) -> Any:
        tile = filled((16, 16), -1.0, a.dtype)
        local_gather(tile, load(a), load(names))
        return store(tile)

    def flat(a: Any, offsets: Any) -> Any:
        tile = filled((16, 1), -1.0, a.dtype)
        nc_n_gather(tile, load(a), load(offsets))
        return store(tile)

    names = np.zeros((16, 1), np.int64)
    names[3] = index
    with pytest.warns(UserWarning, match=r"local_gather\.index-out-of-bounds"):
        result = both(local, data, names.astype(np.uint16))
    assert np.all(result[:, 3] == -1) and np.array_equal(result[:, 4], data[:, 0])
    with pytest.warns(UserWarning, match=r"nc_n_gather\.index-out-of-bounds"):
        result = both(flat, data, names.astype(np.uint32))
    assert result[:, 0].tolist() == [-1 if p == 3 else 8.0 * p for p in range(16)]


def test_a_run_that_leaves_the_partition_is_reported() -> None:
    def kernel(a: Any, names: Any) -> Any:
        tile = filled((16, 32), -1.0, a.dtype)
        local_gather(tile, load(a), load(names), num_elem_per_idx=2)
        return store(tile)

    names = np.full((16, 1), 3, np.uint16)
    with pytest.warns(UserWarning, match=r"local_gather\.index-out-of-bounds"):
        result = both(kernel, np.ones((16, 4), np.float32), names)
    assert np.array_equal(result, np.tile(np.float32([1, -1]), (16, 16)))


def test_an_index_that_does_not_count_may_be_anything() -> None:
    def kernel(a: Any, names: Any) -> Any:
        tile = nl.ndarray((16, 5), a.dtype, buffer=nl.sbuf)
        local_gather(tile, load(a), load(names), num_valid_indices=5)
        return store(tile)

    names = np.full((16, 1), 60000, np.uint16)
    names[:5, 0] = [3, 0, 1, 2, 3]
    data = np.arange(64, dtype=np.float32).reshape(16, 4)
    assert np.array_equal(both(kernel, data, names), data[:, [3, 0, 1, 2, 3]])


def test_a_larger_destination_keeps_its_tail() -> None:
    def kernel(a: Any, names: Any) -> Any:
        tile = filled((16, 20), -1.0, a.dtype)
        local_gather(tile, load(a), load(names))
        return store(tile)

    data, names = np.arange(64, dtype=np.float32).reshape(16, 4), np.zeros((16, 1), np.uint16)
    with pytest.warns(UserWarning, match=r"local_gather\.dst-exact"):
        result = both(kernel, data, names)
    assert np.array_equal(result[:, :16], np.tile(data[:, :1], 16)) and np.all(result[:, 16:] == -1)


@pytest.mark.parametrize("precise", [True, False])
def test_low_precision_keeps_what_it_holds(precise: bool) -> None:
    data = np.tile(np.float32([1.001, 2.003]), (16, 1))

    def kernel(a: Any, offsets: Any) -> Any:
        tile, out = load(a, BF16), nl.ndarray((16, 2), BF16, buffer=nl.sbuf)
        nc_n_gather(out, tile, load(offsets))
        return store(load(store(out), np.float32))

    offsets = np.tile(np.array([1, 0], np.uint32), (16, 1))
    wanted = data[:, ::-1].astype(BF16).astype(np.float32) if precise else data[:, ::-1]
    assert np.array_equal(simulate(kernel, data, offsets, precise=precise), wanted)


@pytest.mark.parametrize("name", ["dst", "data"])
def test_psum_is_out_of_reach(name: str) -> None:
    def kernel(a: Any, offsets: Any) -> Any:
        there, here = (nl.ndarray((16, 4), a.dtype, buffer=buffer) for buffer in (nl.psum, nl.sbuf))
        nc_n_gather(*((there, here) if name == "dst" else (here, there)), load(offsets))
        return a

    assert rejection(kernel, np.ones((16, 4), np.float32), np.zeros((16, 4), np.uint32)).code == "operand.region"


def test_indices_have_the_documented_dtype() -> None:
    def kernel(a: Any, names: Any) -> Any:
        local_gather(filled((16, 16), 0.0, a.dtype), load(a), load(names))
        return a

    assert rejection(kernel, np.ones((16, 4), np.float32), np.zeros((16, 1), np.int32)).code == "operand.dtype"
