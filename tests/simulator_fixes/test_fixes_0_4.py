"""The nine corrections of the simulator of NKI 0.4."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled, store
from tests.support import both, rejection

BF16 = ml_dtypes.bfloat16


def test_skipped_rows_keep_integer_bits() -> None:
    def kernel(table: Any, rows: Any) -> Any:
        tile, index = filled((3, 2), -1, np.int32), load(rows)
        nisa.dma_copy(dst=tile, src=table.ap([[2, 3], [1, 2]], vector_offset=index), oob_mode=nisa.oob_mode.skip)
        return store(tile)

    table = np.array([[2**24 + 1, 2**31 - 1], [-(2**31), -(2**24) - 3]], np.int32)
    got = both(kernel, table, np.array([[1], [5], [0]], np.int32))
    assert got.tolist() == [[-(2**31), -(2**24) - 3], [-1, -1], [2**24 + 1, 2**31 - 1]]


def test_shuffle_mask_255_keeps_the_destination() -> None:
    mask = [255 if i % 3 == 0 else 31 - i for i in range(32)]

    def kernel(a: Any, b: Any) -> Any:
        tile = load(b)
        nisa.nc_stream_shuffle(dst=tile, src=load(a), shuffle_mask=mask)
        return store(tile)

    a, b = (np.random.default_rng(seed).standard_normal((64, 5)).astype(np.float32) for seed in (1, 2))
    wanted = b.copy()
    for row in range(64):
        if row % 32 % 3:
            wanted[row] = a[row // 32 * 32 + 31 - row % 32]
    np.testing.assert_array_equal(both(kernel, a, b), wanted)


@pytest.mark.parametrize("view", ["slice", "ap"])
def test_local_gather_into_views(view: str) -> None:
    def kernel(a: Any, names: Any) -> Any:
        tile = filled((32, 40), -1.0, a.dtype)
        place = tile[:, 4:36:2] if view == "slice" else tile.ap([[40, 32], [2, 16]], offset=4)
        nisa.local_gather(dst=place, src_buffer=load(a), index=load(names))
        return store(tile)

    r = np.random.default_rng(3)
    a, names = r.standard_normal((32, 9)).astype(np.float32), r.integers(0, 9, (32, 1)).astype(np.uint16)
    wanted = np.full((32, 40), -1.0, np.float32)
    for row in range(32):
        group = names[row // 16 * 16 : row // 16 * 16 + 16, 0]
        wanted[row, 4:36:2] = a[row, group]
    np.testing.assert_array_equal(both(kernel, a, names), wanted)


def test_matmul_of_three_dimensions() -> None:
    def kernel(a: Any, b: Any) -> Any:
        total = nl.ndarray((12, 2, 3, 5), np.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=load(a), moving=load(b))
        out = nl.ndarray(total.shape, np.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
        return store(out)

    r = np.random.default_rng(4)
    a, b = (r.integers(-3, 4, shape).astype(BF16) for shape in ((7, 3, 4), (7, 2, 3, 5)))
    wanted = np.einsum("kxy,kabc->xyabc", a.astype(np.float32), b.astype(np.float32)).reshape(12, 2, 3, 5)
    np.testing.assert_array_equal(both(kernel, a, b), wanted)


def test_quantize_to_e4m3fn() -> None:
    def kernel(a: Any) -> Any:
        data = nl.ndarray((32, 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scale = filled((32, 4), 0, np.uint8)
        nisa.quantize_mx(dst=data, src=load(a), dst_scale=scale)
        return store(data.view(nl.uint8)), store(scale)

    a = np.random.default_rng(5).standard_normal((32, 16)).astype(BF16)
    elements, scale = both(kernel, a, target="trn3")
    wide = a.astype(np.float64).reshape(4, 8, 4, 4)
    exponent = np.floor(np.log2(np.abs(wide).max(axis=(1, 3)))) - 7  # twice the scale of the OCP sample algorithm
    np.testing.assert_array_equal(scale[:4], exponent + 127)
    assert not scale[4:].any()
    scaled = (wide / 2.0 ** exponent[:, None, :, None]).reshape(32, 16)
    wanted = scaled.astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(elements, wanted.view(np.uint8))


def test_registers_are_offsets() -> None:
    def kernel(start: Any) -> Any:
        offset = nisa.register_alloc(start)
        ramp, kept = filled((3, 4), 0, np.int32), filled((3, 4), 0.0)
        nisa.iota(dst=ramp, pattern=[[2, 4]], offset=offset, channel_multiplier=100)
        nisa.affine_select(
            dst=kept,
            pattern=[[-1, 4]],
            channel_multiplier=1,
            on_true_tile=filled((3, 4), 1.0),
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
            offset=offset,
        )
        return store(ramp), store(kept)

    for start in (0, 1, -2):
        ramp, kept = both(kernel, np.array([[start]], np.int32))
        row, column = np.mgrid[0:3, 0:4]
        np.testing.assert_array_equal(ramp, start + 100 * row + 2 * column)
        np.testing.assert_array_equal(kept, (start + row - column >= 0).astype(np.float32))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_packed_dtypes_on_trn3(kind: str) -> None:
    def kernel(a: Any, b: Any) -> Any:
        packed = [load(x).view(getattr(nl, f"{kind}_x4")) for x in (a, b)]
        ones = filled((32, 8), 127, np.uint8)
        total = nl.ndarray((8, 6), np.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(total, packed[0], packed[1], ones, ones[:, 0:6])
        out = nl.ndarray((8, 6), np.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
        return store(out)

    r = np.random.default_rng(6)
    a, b = (r.choice([-2, -1.5, 0, 0.5, 1, 3], (32, n, 4)).astype(getattr(ml_dtypes, kind)) for n in (8, 6))
    words = [x.view(np.uint32)[:, :, 0] for x in (a, b)]
    wanted = np.einsum("kiq,kjq->ij", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(both(kernel, *words, target="trn3"), wanted)


def test_dma_compute_has_no_scale() -> None:
    def total(*scales: float) -> Any:
        def kernel(a: Any, b: Any) -> Any:
            out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
            nisa.dma_compute(out, [a, b], nl.add, scales=list(scales) or None)
            return out

        return kernel

    a, b = (np.random.default_rng(seed).standard_normal((4, 6)).astype(np.float32) for seed in (7, 8))
    np.testing.assert_array_equal(both(total(), a, b), a + b)
    np.testing.assert_array_equal(both(total(1.0, 1.0), a, b), a + b)
    assert rejection(total(1.0, 0.5), a, b).code == "dma_compute.scales"


def test_logical_and() -> None:
    def kernel(a: Any, b: Any) -> Any:
        return store(nl.logical_and(load(a), load(b)))

    r = np.random.default_rng(9)
    a, b = (r.choice([0.0, -0.0, 0.5, -2.0, np.inf, 1e-40], (8, 32)).astype(np.float32) for _ in "ab")
    got = np.asarray(both(kernel, a, b)).astype(np.float32)
    np.testing.assert_array_equal(got, ((a != 0) & (b != 0)).astype(np.float32))
