"""The ten corrections of the simulator of NKI 0.6."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled, store
from tests.support import both

BF16 = ml_dtypes.bfloat16
LOWEST = float(np.finfo(np.float32).min)


def from_psum(total: Any) -> Any:
    out = nl.ndarray(total.shape, total.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=total)
    return store(out)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_casts_round_and_saturate(dtype: Any) -> None:
    def kernel(a: Any) -> Any:
        by_vector, by_scalar = (nl.ndarray(a.shape, dtype, buffer=nl.sbuf) for _ in "ab")
        nisa.tensor_copy(dst=by_vector, src=load(a), engine=nisa.engine.vector)
        nisa.activation(dst=by_scalar, op=nl.copy, data=load(a))
        return store(by_vector), store(by_scalar), store(load(a, dtype))

    a = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 3.49, 1e20, -1e20, 127.5, 255.5, 32767.5]], np.float32)
    limits = np.iinfo(dtype)
    wanted = [[int(min(max(round(float(v)), limits.min), limits.max)) for v in a[0]]]  # round: ties to even
    for got in both(kernel, a):
        assert got.tolist() == wanted


def test_match_replace_walks_backwards() -> None:
    def kernel(a: Any, values: Any) -> Any:
        tile, index = load(a), filled((2, 8), 0, np.uint32)
        nisa.nc_match_replace8(dst=tile, data=tile, vals=load(values), imm=-1.0, dst_idx=index)
        return store(tile), store(index)

    a = np.array([[5, 3, 5, 1, 5, 3, 9, 5, 2], [3, 3, 3, 3, 3, 3, 3, 3, 3]], np.float32)
    values = np.array([[5, 3, 9, 5, 3, 5, 1, 5], [3, 3, 3, 3, 3, 3, 3, 3]], np.float32)
    wanted, places = a.copy(), np.zeros((2, 8), np.uint32)
    for row in range(2):
        for slot in reversed(range(8)):
            places[row, slot] = np.flatnonzero(wanted[row] == values[row, slot])[0]
            wanted[row, places[row, slot]] = -1
    got, index = both(kernel, a, values)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(index, places)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_find_index_unmatched_and_duplicates(dtype: Any) -> None:
    def kernel(a: Any, values: Any) -> Any:
        index = filled((1, 8), 0, dtype)
        nisa.nc_find_index8(dst=index, data=load(a), vals=load(values))
        return store(index)

    a = np.array([[4, 8, 4, 2, 8, 4, 0, 1]], np.float32)
    got = both(kernel, a, np.array([[4, 4, 8, 7, 4, 8, 4, 0]], np.float32))
    missing = np.iinfo(dtype).max
    assert got.tolist() == [[0, 2, 1, missing, 5, 4, missing, 6]]


def test_reduction_into_its_own_destination() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        nisa.activation(
            dst=tile,
            op=nl.square,
            data=tile,
            reduce_op=nl.add,
            reduce_res=tile[:, 3:4],
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return store(tile)

    a = np.random.default_rng(1).integers(-9, 9, (6, 5)).astype(np.float32)
    wanted = a**2
    wanted[:, 3] = wanted.sum(axis=1)
    np.testing.assert_array_equal(both(kernel, a), wanted)


def test_sliced_scales() -> None:
    """Two tensors quantised into rows 0-3 and 4-7 of each quadrant of one scale tensor, then multiplied."""

    def kernel(a: Any, b: Any) -> Any:
        scales = filled((64, 8), 200, np.uint8)
        tiles = []
        for array, first in ((a, 0), (b, 4)):
            tile = nl.ndarray((64, 8), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
            nisa.quantize_mx(dst=tile, src=load(array), dst_scale=scales[first:, :])
            tiles.append(tile)
        total = nl.ndarray((8, 8), np.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(total, tiles[0], tiles[1], scales[0:, :], scales[4:, :])
        return from_psum(total), store(scales)

    r = np.random.default_rng(2)
    a, b = (r.choice([-2.0, -1.0, 0.5, 1.0, 4.0], (64, 32)).astype(BF16) for _ in "ab")  # exact in fp8
    total, scales = both(kernel, a, b, target="trn3")
    wanted = np.einsum("kiq,kjq->ij", *(x.astype(np.float64).reshape(64, 8, 4) for x in (a, b)))
    np.testing.assert_array_equal(total, wanted)
    assert (scales.reshape(2, 32, 8)[:, 8:] == 200).all(), "the rest of the scale tensor was written"
    assert (scales.reshape(2, 32, 8)[:, :8] != 200).all()


def test_double_row() -> None:
    def kernel(a: Any, b: Any) -> Any:
        total = nl.ndarray((6, 9), np.float32, buffer=nl.psum)
        nisa.nc_matmul(total, load(a), load(b), perf_mode=nisa.matmul_perf_mode.double_row)
        return from_psum(total)

    r = np.random.default_rng(3)
    a, b = (r.integers(-3, 4, (20, 2, n)).astype(ml_dtypes.float8_e4m3) for n in (6, 9))
    got = both(kernel, a, b)
    assert got.shape == (6, 9)
    np.testing.assert_array_equal(got, np.tensordot(a.astype(np.float32), b.astype(np.float32), ((0, 1), (0, 1))))


def test_overlapping_accumulation() -> None:
    """A transposed convolution: each input column adds to three output columns."""

    def kernel(a: Any, b: Any) -> Any:
        weights, data = load(a), load(b)
        total = nl.ndarray((5, 12), np.float32, buffer=nl.psum)
        for tap in range(3):
            nisa.nc_matmul(total[:, tap : tap + 10], weights[:, tap, :], data)
        return from_psum(total)

    r = np.random.default_rng(4)
    a, b = r.integers(-3, 4, (8, 3, 5)).astype(np.float32), r.integers(-3, 4, (8, 10)).astype(np.float32)
    wanted = np.stack([sum(np.convolve(b[k], a[k, :, m]) for k in range(8)) for m in range(5)])
    np.testing.assert_array_equal(both(kernel, a, b), wanted)


@pytest.mark.parametrize(
    ("code", "first"),
    [
        (r"psum\.accumulate-unwritten", lambda total: None),
        (r"psum\.accumulate-foreign", lambda total: nisa.memset(total, 1.0)),
    ],
)
def test_undefined_accumulation_warns(code: str, first: Any) -> None:
    def kernel(a: Any) -> Any:
        total = nl.ndarray((4, 4), np.float32, buffer=nl.psum)
        first(total)
        nisa.nc_matmul(total, load(a), load(a), accumulate=True)
        return from_psum(total)

    with pytest.warns(UserWarning, match=code):
        both(kernel, np.ones((3, 4), np.float32))


def test_operands_of_other_ranks() -> None:
    def kernel(a: Any, b: Any, mask: Any) -> Any:
        first, second = load(a), nl.ndarray((8, 3, 2, 2), a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy_predicated(
            dst=first.reshape((8, 3, 2, 2)), src=load(b), predicate=load(mask).reshape((8, 2, 6))
        )
        nisa.select_reduce(second, load(mask).reshape((8, 4, 3)), load(b), -5.0)
        return store(first), store(second.reshape((8, 12)))

    r = np.random.default_rng(5)
    a, b = (r.standard_normal((8, 12)).astype(np.float32) for _ in "ab")
    mask = r.integers(0, 2, (8, 12)).astype(np.uint8)
    copied, selected = both(kernel, a, b, mask)
    np.testing.assert_array_equal(copied, np.where(mask, b, a))
    np.testing.assert_array_equal(selected, np.where(mask, b, np.float32(-5)))


def test_python_floats_as_fill() -> None:
    def kernel(a: Any, low: Any, high: Any) -> Any:
        tile, by_range, by_position = load(a), filled(a.shape), filled(a.shape)
        nisa.range_select(
            dst=by_range,
            on_true_tile=tile,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=load(low),
            bound1=load(high),
            on_false_value=LOWEST,
        )
        nisa.affine_select(by_position, [[-1, 8]], 1, tile, LOWEST, nl.greater_equal)
        return store(by_range), store(by_position)

    a = np.random.default_rng(6).standard_normal((8, 8)).astype(np.float32)
    low, high = np.full((8, 1), 2, np.float32), np.arange(8, dtype=np.float32)[:, None]
    row, column = np.mgrid[0:8, 0:8]
    by_range, by_position = both(kernel, a, low, high)
    np.testing.assert_array_equal(by_range, np.where((column >= 2) & (column < row), a, np.float32(LOWEST)))
    np.testing.assert_array_equal(by_position, np.where(row >= column, a, np.float32(LOWEST)))
