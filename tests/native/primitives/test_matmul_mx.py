"""Microscaled products are native, and have the bits of exact fused multiply-adds and of NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.native.primitives.matmul_mx import matmul_mx_text
from nki.native.primitives.widen import PACKED
from tests.native.primitives.support import (
    F32,
    RESULTS,
    Memory,
    compiled,
    execute,
    layouts,
    place,
    product_of,
    ranges,
    record,
    same,
)

ELEMENTS = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}
STORAGE = {4: np.uint32, 2: np.uint16}
NAMES = st.sampled_from(list(ELEMENTS))


def storage(name: str) -> type:
    """Of a packed element."""
    return STORAGE[PACKED[name].size]


def codes(words: np.ndarray, name: str) -> np.ndarray:
    """(4, ...): the bits of all first values, of all second ones, and so on."""
    bits = PACKED[name].bits
    return np.stack([(words >> (bits * lane)).astype(np.uint8) & ((1 << bits) - 1) for lane in range(4)])


@np.errstate(all="ignore")
def dequantized(words: np.ndarray, scales: np.ndarray, name: str) -> np.ndarray:
    """The rows of a quadrant in the order of the sum; `scales` as many rows as groups."""
    values = codes(np.ascontiguousarray(words), name).view(ELEMENTS[name]).astype(F32)
    factors = np.ascontiguousarray(scales).view(ml_dtypes.float8_e8m0fnu).astype(F32)
    products = values * np.repeat(factors, 8, axis=0)
    return products.reshape(-1, words.shape[1])


def reference(quadrants: list[list[Memory]], names: tuple[str, str]) -> np.ndarray:
    """The sum of the quadrants' products, each from 0 on."""
    products = [
        product_of(dequantized(left.view, ls.view, names[0]), dequantized(right.view, rs.view, names[1]))
        for left, ls, right, rs in quadrants
    ]
    total = products[0]
    with np.errstate(all="ignore"):
        for product in products[1:]:
            total = total + product
    return total


@given(
    st.data(),
    st.tuples(NAMES, NAMES),
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 70),
    st.sampled_from(list(RESULTS)),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_layout(
    data: st.DataObject, names: tuple[str, str], count: int, m: int, n: int, result: str, add: bool, seed: int
) -> None:
    """Random bits, with NaN among them, and mostly scales with which sums stay finite."""
    kind = RESULTS[result]
    dst = place((m, n), data.draw(layouts((m, n), np.dtype(kind).itemsize, False)), kind, seed)
    quadrants = []
    for _ in range(count):
        quadrant = []
        for name, columns in zip(names, (m, n), strict=True):
            size = PACKED[name].size
            for rows, item, stored in ((32, size, storage(name)), (4, 1, np.uint8)):
                strides = (columns * item, item) if data.draw(st.booleans()) else None
                strides = strides or data.draw(layouts((rows, columns), item, True))
                quadrant.append(place((rows, columns), strides, stored, seed + len(quadrant)))
            if data.draw(st.integers(0, 4)):
                quadrant[-1].view[...] = quadrant[-1].view % 16 + 120
        quadrants.append(quadrant)
    first, last = data.draw(ranges(m))
    before, old = dst.bytes.copy(), dst.view.copy()
    expected = reference(quadrants, names)
    with np.errstate(all="ignore"):
        expected = (old.astype(F32) + expected if add else expected).astype(kind)
    operands = [memory for quadrant in quadrants for memory in quadrant]
    words = record(compiled(matmul_mx_text, *names, result), [dst, *operands], [int(add), count])
    assert execute(words, first, last) == 0
    same(dst.view[first:last], expected[first:last])
    dst.view[first:last] = old[first:last]
    np.testing.assert_array_equal(dst.bytes, before)


@pytest.mark.parametrize("name", list(ELEMENTS))
@np.errstate(invalid="ignore", over="ignore")
def test_every_value_with_every_scale(name: str) -> None:
    """One value of a column is not zero; it is multiplied by one."""
    bits, item = PACKED[name].bits, PACKED[name].size
    values = np.arange(1 << bits)
    one = place((32, 1), (4, 4), np.uint32, 1)
    one.view[...] = 0x38383838  # 1.0 in every lane of float8_e4m3fn
    unit = place((4, 1), (1, 1), np.uint8, 1)
    unit.view[...] = 127
    function = compiled(matmul_mx_text, "float8_e4m3fn_x4", name)
    width = len(values)
    right = place((32, width), (width * item, item), storage(name), 2)
    scales = place((4, width), (width, 1), np.uint8, 2)
    dst = place((1, width), (width * 4, 4), F32, 3)
    for scale in range(256):
        lane, row = scale % 4, scale % 32
        right.view[...] = 0
        right.view[row] = values << (bits * lane)
        scales.view[...] = 127
        scales.view[row // 8] = scale
        assert execute(record(function, [dst, one, unit, right, scales], [0, 1]), 0, 1) == 0
        factor = np.uint8(scale).view(ml_dtypes.float8_e8m0fnu).astype(F32)
        expected = values.astype(np.uint8).view(ELEMENTS[name]).astype(F32) * factor
        same(dst.view[0], expected + F32(0))
        if scale < 255:  # else a NaN meets another one, and either may be the result
            np.testing.assert_array_equal(dst.view[0].view(np.uint32), (expected + F32(0)).view(np.uint32))


def test_what_exceeds_the_scratch_memory_is_refused() -> None:
    name = "float8_e5m2_x4"
    for m, n in ((129, 4), (4, 8193)):
        dst = place((m, n), (n * 4, 4), F32, 1)
        operands = [
            place((rows, columns), (columns * item, item), kind, 2)
            for columns in (m, n)
            for rows, item, kind in ((32, 4, np.uint32), (4, 1, np.uint8))
        ]
        before = dst.bytes.copy()
        assert execute(record(compiled(matmul_mx_text, name, name), [dst, *operands], [0, 1]), 0, m) == 1
        np.testing.assert_array_equal(dst.bytes, before)


def kernel(a: Any, ascale: Any, b: Any, bscale: Any, offset: int, products: int, dtype: Any) -> Any:
    """Sums of products of two tiles; of the tensors of scales only the rows that count are ever written."""
    tiles = []
    for data, scale in ((a, ascale), (b, bscale)):
        tile = nl.ndarray(data.shape, data.dtype, buffer=nl.sbuf)
        scales = nl.ndarray(data.shape, nl.uint8, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=data)
        for first in range(0, data.shape[0], 32):
            start = first + offset
            nisa.dma_copy(dst=scales[start : start + 4], src=scale[first // 8 : first // 8 + 4])
        tiles.append((tile, scales[offset : data.shape[0] - 32 + offset + 4]))
    (left, left_scales), (right, right_scales) = tiles
    wide = nl.ndarray((a.shape[1], b.shape[1]), dtype, buffer=nl.psum)
    for _ in range(products):
        nisa.nc_matmul_mx(wide, left, right, left_scales, right_scales)
    tile = nl.ndarray(wide.shape, dtype, buffer=nl.sbuf)
    nisa.tensor_copy(tile, wide)
    out = nl.ndarray(wide.shape, dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize("names", [("float8_e5m2_x4", "float4_e2m1fn_x4"), ("float8_e4m3fn_x4", "float8_e4m3fn_x4")])
@pytest.mark.parametrize(
    ("depth", "rows", "columns", "offset", "dtype"),
    [
        (128, 128, 512, 0, nl.float32),
        (32, 2, 7, 12, nl.float32),
        (64, 34, 70, 8, nl.float32),
        (128, 128, 1024, 4, nl.bfloat16),
        (32, 6, 9, 0, nl.bfloat16),
    ],
)
def test_native_products_have_the_bits_of_numpy(
    names: tuple[str, str],
    depth: int,
    rows: int,
    columns: int,
    offset: int,
    dtype: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    random = np.random.default_rng(depth)
    data, scales = [], []
    for name, count in zip(names, (rows, columns), strict=True):
        words = random.integers(0, 1 << 8 * PACKED[name].size, (depth, count), storage(name))
        finite = np.isfinite(codes(words, name).view(ELEMENTS[name]).astype(F32)).all(0)
        data.append(np.where(finite, words, 0).astype(storage(name)).view(getattr(dtypes, name).numpy))
        scales.append(random.integers(115, 130, (depth // 8, count), np.uint8))
    found = []
    for native in ("always", "0"):
        monkeypatch.setenv("NKI_NATIVE", native)
        for simulate in (False, True):
            made = nki.jit(kernel)
            result = (nki.simulate(made) if simulate else made)(
                data[0], scales[0], data[1], scales[1], offset, 3, dtype
            )
            found.append(result.tobytes())
            if not simulate:
                assert made.report is not None
                assert (made.report.executed.native > 3, made.report.executed.interpreted or 0) == (native != "0", 0)
    assert len(set(found)) == 1
    spread = [np.repeat(s.view(ml_dtypes.float8_e8m0fnu).astype(np.float64), 8, axis=0) for s in scales]
    left, right = (
        (codes(d.view(storage(name)), name).view(ELEMENTS[name]).astype(np.float64) * s).reshape(-1, d.shape[1])
        for d, name, s in zip(data, names, spread, strict=True)
    )
    wanted, size = 3 * (left.T @ right), 3 * (np.abs(left).T @ np.abs(right))
    error = np.abs(np.frombuffer(found[0], dtype.numpy).astype(F32).reshape(rows, columns) - wanted)
    assert (error <= (2.0**-14 if dtype is nl.float32 else 2.0**-7) * size).all()


def windows(a: Any, ascale: Any, b: Any, bscale: Any, step: int) -> Any:
    """A product with some columns of `b` in each trip of a device loop."""
    left, right = (nl.ndarray(t.shape, t.dtype, buffer=nl.sbuf) for t in (a, b))
    left_scales, right_scales = (nl.ndarray(t.shape, nl.uint8, buffer=nl.sbuf) for t in (a, b))
    for tile, data in ((left, a), (right, b), (left_scales, ascale), (right_scales, bscale)):
        nisa.dma_copy(dst=tile, src=data)
    depth, rows = a.shape
    out = nl.ndarray((4 * rows, 32), nl.float32, buffer=nl.shared_hbm)

    def body(i: Any) -> None:
        def window(tile: Any) -> Any:
            return tile.ap([[b.shape[1], depth], [1, 32]], scalar_offset=i * step, indirect_dim=1)

        wide = nl.ndarray((rows, 32), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(wide, left, window(right), left_scales, window(right_scales))
        tile = nl.ndarray(wide.shape, nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(tile, wide)
        nisa.dma_copy(dst=out.ap([[32, rows], [1, 32]], scalar_offset=i * rows), src=tile)

    nl.fori_loop(0, 4, body)
    return out


def test_products_at_addresses_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    random = np.random.default_rng(4)
    data = [random.integers(0, 1 << 32, (128, n), np.uint32) & 0x77777777 for n in (64, 200)]
    scales = [random.integers(115, 130, tile.shape, np.uint8) for tile in data]
    a, b = (tile.astype(np.uint32).view(dtypes.float8_e5m2_x4.numpy) for tile in data)
    found = set()
    for native in ("always", "0"):
        monkeypatch.setenv("NKI_NATIVE", native)
        made = nki.jit(windows)
        found.add(made(a, scales[0], b, scales[1], 40).tobytes())
        assert made.report is not None
        assert bool(made.report.executed.native) == (native != "0") and not made.report.executed.interpreted
        found.add(nki.simulate(nki.jit(windows))(a, scales[0], b, scales[1], 40).tobytes())
    assert len(found) == 1
