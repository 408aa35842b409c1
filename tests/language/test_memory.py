"""Tensors that start with a value, in every region, and views that repeat or gain a dimension."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, same, words
from tests.support import both
from tests.together import together

REGIONS = ("sbuf", "psum", "hbm", "private_hbm", "shared_hbm")
E4M3 = ml_dtypes.float8_e4m3


def _delivered(make: Any, target: str = "trn2") -> np.ndarray:
    """What a tensor holds, by way of SBUF."""

    def kernel(_: Any) -> Any:
        tensor = make()
        tile = nl.copy(tensor) if nl.is_on_chip(tensor.buffer) else nl.load(tensor)
        out = nl.ndarray(tensor.shape, tensor.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return np.asarray(both(kernel, np.zeros((1, 1), np.float32), target=target))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("region", REGIONS)
def test_fills(region: str, target: str) -> None:
    buffer = getattr(nl, region)
    same(_delivered(lambda: nl.zeros((100, 7), nl.float32, buffer=buffer), target), np.zeros((100, 7)))
    same(_delivered(lambda: nl.ones((100, 7), nl.bfloat16, buffer, "one"), target), np.ones((100, 7)))
    same(_delivered(lambda: nl.full((100, 7), -2.5, nl.float16, buffer), target), np.full((100, 7), -2.5))


FILLS = [
    (nl.float32, float("-inf")),
    (nl.float32, float("nan")),
    (nl.bfloat16, 1 / 3),
    (nl.int32, -(2**31) + 1),
    (nl.uint32, 2**32 - 1),
    (nl.int8, -128),
    (nl.uint8, True),
    (nl.bool_, True),
    (nl.float8_e4m3, 240),
]


@pytest.mark.parametrize(("dtype", "value"), FILLS, ids=str)
def test_fill_values_of_dtypes(dtype: Any, value: Any) -> None:
    same(_delivered(lambda: nl.full((4, 3), value, dtype)), np.full((4, 3), value, dtype.numpy))


@pytest.mark.parametrize("shape", [(5,), (1, 1), (128, 513), (3, 130, 41), (1000, 7), (2, 3, 4, 5)], ids=str)
def test_fill_of_any_hbm_shape(shape: tuple[int, ...]) -> None:
    def kernel(_: Any) -> Any:
        return nl.full(shape, 7, nl.int16, buffer=nl.shared_hbm)

    same(both(kernel, np.zeros((1, 1), np.float32)), np.full(shape, 7))


def test_fill_of_hbm_larger_than_one_tile() -> None:
    def kernel(_: Any) -> Any:
        return nl.ones((700_001,), nl.uint8, buffer=nl.shared_hbm)

    same(both(kernel, np.zeros((1, 1), np.float32)), np.ones(700_001))


def test_like() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        accumulator = nl.zeros_like(tile, dtype=nl.float32, buffer=nl.psum)
        copied = nl.empty_like(tile)
        nisa.tensor_copy(dst=copied, src=accumulator)
        assert (accumulator.buffer, accumulator.dtype, copied.buffer) == (nl.psum, nl.float32, nl.sbuf)
        assert nl.empty_like(a).buffer is nl.private_hbm
        nothing = nl.zeros_like(a, buffer=nl.shared_hbm)
        out = nl.empty_like(a, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, copied)
        return out, nothing

    out, nothing = both(kernel, normal((16, 8), BFLOAT16))
    assert (out.dtype, nothing.dtype) == (np.float32, BFLOAT16)
    same(out, np.zeros((16, 8)))
    same(nothing, np.zeros((16, 8)))


def test_slices_by_start_and_size() -> None:
    x = normal((64, 40))
    same(on_tiles(lambda t: nl.copy(t[nl.ds(32, 16), nl.ds(3, 5)]), x), x[32:48, 3:8])


def test_region_questions() -> None:
    regions = [nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm]
    assert [nl.is_hbm(r) for r in regions] == [False, False, True, True, True]
    assert [nl.is_on_chip(r) for r in regions] == [True, True, False, False, False]
    assert [nl.is_sbuf(r) for r in regions] == [True, False, False, False, False]
    assert [nl.is_psum(r) for r in regions] == [False, True, False, False, False]


@pytest.mark.parametrize("target", TARGETS)
@together("dtype", [np.float32, BFLOAT16, np.uint8, np.int32, E4M3])
@together("partitions", [2, 32, 33, 64, 128])
def test_broadcast_over_partitions_keeps_bits(partitions: int, dtype: Any, target: str) -> None:
    bits = words((1, 24), f"u{np.dtype(dtype).itemsize}").view(dtype)
    got = on_tiles(lambda t: nl.broadcast_to(t, (partitions, 24)), bits, target=target)
    assert got.tobytes() == np.broadcast_to(bits, (partitions, 24)).tobytes()


@pytest.mark.parametrize("row", [0, 5, 32, 63])
def test_broadcast_of_any_partition(row: int) -> None:
    x = normal((64, 24))
    same(on_tiles(lambda t: nl.broadcast_to(t[row], (128, 24)), x), np.broadcast_to(x[row], (128, 24)))


def test_broadcast_of_free_dimensions_and_dtype() -> None:
    x = normal((1, 3, 1, 5))
    wanted = np.broadcast_to(x, (40, 3, 4, 5))
    same(on_tiles(lambda t: nl.broadcast_to(t, [40, 3, 4, 5]), x), wanted)
    got = on_tiles(lambda t: nl.broadcast_to(t, (40, 3, 4, 5), dtype=nl.bfloat16), x, psum=True)
    assert got.dtype == BFLOAT16
    same(got, wanted.astype(BFLOAT16))


def test_broadcast_to_the_same_shape_is_the_tile_itself() -> None:
    def function(tile: Any) -> Any:
        assert nl.broadcast_to(tile, tile.shape) is tile
        assert nl.broadcast_to(tile, tile.shape, dtype=nl.bfloat16).dtype == nl.bfloat16
        return tile

    on_tiles(function, normal((8, 8)))


@pytest.mark.parametrize(("axis", "shape"), [(1, (8, 1, 5)), (2, (8, 5, 1)), (-1, (8, 5, 1)), (-2, (8, 1, 5))])
def test_expand_dims_is_a_view(axis: int, shape: tuple[int, ...]) -> None:
    x = normal((8, 5))

    def function(tile: Any) -> Any:
        view = nl.expand_dims(tile, axis)
        assert view.shape == shape
        nisa.memset(dst=view[0:1], value=7.0)
        return tile

    same(on_tiles(function, x)[0], np.full(5, 7))


def test_base_tensor_is_all_that_a_view_was_taken_of() -> None:
    def kernel(a: Any) -> Any:
        part = a[0:2, 4:8]
        assert part.base_tensor.shape == a.shape == a.base_tensor.shape
        assert part.base_tensor.dtype == a.dtype
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=part.base_tensor)
        return out

    a = np.arange(64, dtype=np.float32).reshape(4, 16)
    np.testing.assert_array_equal(both(kernel, a), a)
