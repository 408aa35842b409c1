"""Copies, fills, transposes and helpers of rows move exactly the bits that NumPy moves, and no others."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.native.operand_layout import HEADER, STREAMED, UNIT
from nki.native.primitives.copy import copy_text
from nki.native.primitives.transpose import transpose_text
from tests.native.primitives.support import (
    BITS,
    ROW,
    Memory,
    base,
    compiled,
    execute,
    layouts,
    place,
    ranges,
    record,
    slot_words,
)
from tests.oracles.fill import fill_text
from tests.together import together

SIZES = st.sampled_from([1, 2, 4])
COUNTS = st.one_of(st.integers(1, 6), st.sampled_from([15, 16, 17, 33]))


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Partitions and up to five dimensions, at most some thousand items."""
    shape = [draw(COUNTS)]
    for _ in range(draw(st.integers(0, 5))):
        shape.append(draw(COUNTS) if np.prod(shape) < 600 else draw(st.integers(1, 2)))
    return tuple(shape)


@given(st.data(), SIZES, shapes(), st.integers(0, 1000))
def test_copy(data: st.DataObject, size: int, shape: tuple[int, ...], seed: int) -> None:
    dst = place(shape, data.draw(layouts(shape, size, False)), BITS[size], seed)
    src = place(shape, data.draw(layouts(shape, size, True)), BITS[size], seed + 1)
    first, last = data.draw(ranges(shape[0]))
    expected = dst.bytes.copy()
    np.ndarray(shape, dst.view.dtype, expected, dst.address - dst.bytes.ctypes.data, dst.view.strides)[first:last] = (
        src.view[first:last]
    )
    source = src.bytes.copy()
    assert execute(record(compiled(copy_text, size), [dst, src]), first, last) == 0
    np.testing.assert_array_equal(dst.bytes, expected)
    np.testing.assert_array_equal(src.bytes, source)


@pytest.mark.parametrize("size", [1, 2, 4])
@together("count", [*range(1, 140), 255, 256, 257, 511, 512, 1000])
def test_every_length_of_a_row(size: int, count: int) -> None:
    dst, src = (
        place((3, count), (count * size + 8, size), BITS[size], 1),
        place((3, count), (size * count, size), BITS[size], 2),
    )
    expected = dst.bytes.copy()
    start = dst.address - dst.bytes.ctypes.data
    np.ndarray((3, count), dst.view.dtype, expected, start, dst.view.strides)[...] = src.view
    assert execute(record(compiled(copy_text, size), [dst, src]), 0, 3) == 0
    np.testing.assert_array_equal(dst.bytes, expected)
    item = int(src.view[0, 0])
    np.ndarray((3, count), dst.view.dtype, expected, start, dst.view.strides)[...] = item
    assert execute(record(compiled(fill_text, size), [dst], [item]), 0, 3) == 0
    np.testing.assert_array_equal(dst.bytes, expected)


@pytest.mark.parametrize("size", [1, 2, 4])
@together("count", [1, 7, 63, 64, 65, 127, 255, 256, 257, 319, 320, 511, 512, 640, 1000, 1031])
def test_streamed_rows(size: int, count: int) -> None:
    """Rows that begin anywhere in a line, and end anywhere."""
    for seed in range(7):
        dst = place((9, count), (count * size + 8 * size, size), BITS[size], seed)
        src = place((9, count), (size * count, size), BITS[size], seed + 1)
        expected = dst.bytes.copy()
        start = dst.address - dst.bytes.ctypes.data
        np.ndarray((9, count), dst.view.dtype, expected, start, dst.view.strides)[1:] = src.view[1:]
        words = record(compiled(copy_text, size), [dst, src])
        words[HEADER + UNIT] = STREAMED
        assert execute(words, 1, 9) == 0
        np.testing.assert_array_equal(dst.bytes, expected)


def test_copy_of_a_place_onto_itself() -> None:
    memory = place((5, 100), (404, 4), np.uint32, 3)
    before = memory.bytes.copy()
    assert execute(record(compiled(copy_text, 4), [memory, memory]), 0, 5) == 0
    np.testing.assert_array_equal(memory.bytes, before)


@given(st.data(), SIZES, shapes(), st.integers(0, 1000))
def test_fill(data: st.DataObject, size: int, shape: tuple[int, ...], seed: int) -> None:
    dst = place(shape, data.draw(layouts(shape, size, False)), BITS[size], seed)
    first, last = data.draw(ranges(shape[0]))
    item = data.draw(st.integers(0, 256**size - 1))
    expected = dst.bytes.copy()
    np.ndarray(shape, dst.view.dtype, expected, dst.address - dst.bytes.ctypes.data, dst.view.strides)[first:last] = (
        item
    )
    assert execute(record(compiled(fill_text, size), [dst], [item]), first, last) == 0
    np.testing.assert_array_equal(dst.bytes, expected)


@given(st.data(), SIZES, shapes(), st.integers(0, 1000))
def test_gather_and_scatter(data: st.DataObject, size: int, shape: tuple[int, ...], seed: int) -> None:
    shape = (1, *shape[1:])
    src = place(shape, data.draw(layouts(shape, size, True)), BITS[size], seed)
    dense = place((src.view.size,), (size,), BITS[size], seed + 1)
    expected = dense.bytes.copy()
    start = dense.address - dense.bytes.ctypes.data
    expected[start : start + dense.view.nbytes] = np.ascontiguousarray(src.view).reshape(-1).view(np.uint8)
    dims = np.array(slot_words(src, 0)[4:], np.int64)
    ROW(base()[f"gather_{size}"])(dense.address, src.address, dims.ctypes.data)
    np.testing.assert_array_equal(dense.bytes, expected)

    dst = place(shape, data.draw(layouts(shape, size, False)), BITS[size], seed + 2)
    expected = dst.bytes.copy()
    target = np.ndarray(shape, dst.view.dtype, expected, dst.address - dst.bytes.ctypes.data, dst.view.strides)
    target[...] = dense.view.reshape(shape)
    dims = np.array(slot_words(dst, 0)[4:], np.int64)
    ROW(base()[f"scatter_{size}"])(dst.address, dense.address, dims.ctypes.data)
    np.testing.assert_array_equal(dst.bytes, expected)


@given(st.data(), SIZES, st.integers(1, 70), st.integers(1, 70), st.integers(0, 1000))
def test_transpose(data: st.DataObject, size: int, rows: int, columns: int, seed: int) -> None:
    layout = st.sampled_from(["rows", "rows", "any"])
    operands = []
    for shape, reads in (((rows, columns), False), ((columns, rows), True)):
        if data.draw(layout) == "rows":
            strides: tuple[int, ...] = (shape[1] * size + data.draw(st.integers(0, 9)) * size, size)
        else:
            strides = data.draw(layouts(shape, size, reads))
        operands.append(place(shape, strides, BITS[size], seed + len(operands)))
    dst, src = operands
    first, last = data.draw(ranges(rows))
    expected = dst.bytes.copy()
    start = dst.address - dst.bytes.ctypes.data
    np.ndarray((rows, columns), dst.view.dtype, expected, start, dst.view.strides)[first:last] = src.view.T[first:last]
    assert execute(record(compiled(transpose_text, size), [dst, src]), first, last) == 0
    np.testing.assert_array_equal(dst.bytes, expected)


@pytest.mark.parametrize("size", [1, 2, 4])
@together("rows", [1, 15, 16, 17, 31, 33, 128])
def test_every_edge_of_a_transpose(size: int, rows: int) -> None:
    """Destinations are wider than what is written: nothing but that is."""
    for columns in (1, 14, 15, 16, 17, 31, 32, 47):
        dst = place((rows, columns), ((columns + 20) * size, size), BITS[size], rows)
        src = place((columns, rows), ((rows + 3) * size, size), BITS[size], columns)
        expected = dst.bytes.copy()
        start = dst.address - dst.bytes.ctypes.data
        np.ndarray((rows, columns), dst.view.dtype, expected, start, dst.view.strides)[...] = src.view.T
        assert execute(record(compiled(transpose_text, size), [dst, src]), 0, rows) == 0
        np.testing.assert_array_equal(dst.bytes, expected)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_nothing_is_read_behind_the_last_item(size: int) -> None:
    """The source ends where a page begins that nobody may read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    content = np.frombuffer(memory, np.uint8)
    content[:] = np.random.default_rng(1).integers(0, 256, 3 * page)
    end = content.ctypes.data + 2 * page
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(end, page, 0) == 0
    try:
        for step in (0, 1, 2, 3):
            for count in (1, 5, 16, 17, 32, 33, 64, 65, 128, 129, 200):
                offset = 2 * page - ((count - 1) * step + 1) * size
                src = Memory(content, np.ndarray((1, count), BITS[size], memory, offset, (0, step * size)))
                dst = place((1, count), (count * size, size), BITS[size], 2)
                assert execute(record(compiled(copy_text, size), [dst, src]), 0, 1) == 0
                np.testing.assert_array_equal(dst.view, src.view)
        for rows, columns in ((5, 16), (16, 16), (17, 33)):
            offset = 2 * page - rows * columns * size
            src = Memory(content, np.ndarray((columns, rows), BITS[size], memory, offset))
            dst = place((rows, columns), (columns * size, size), BITS[size], 3)
            assert execute(record(compiled(transpose_text, size), [dst, src]), 0, rows) == 0
            np.testing.assert_array_equal(dst.view, src.view.T)
    finally:
        assert protect(end, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_transpose_refuses_what_exceeds_the_scratch_memory() -> None:
    dst, src = place((600, 600), (2400, 4), np.uint32, 1), place((600, 600), (4800, 8), np.uint32, 2)
    before = dst.bytes.copy()
    assert execute(record(compiled(transpose_text, 4), [dst, src]), 0, 600) == 1
    np.testing.assert_array_equal(dst.bytes, before)


def test_transpose_of_several_dimensions() -> None:
    """Elements of a partition in element order, whatever dimensions they have."""
    dst = place((6, 4, 5), (200, 7, 1), np.uint8, 1)
    src = place((20, 2, 3), (11, 1, 3), np.uint8, 2)
    assert execute(record(compiled(transpose_text, 1), [dst, src]), 0, 6) == 0
    np.testing.assert_array_equal(dst.view.reshape(6, 20), src.view.reshape(20, 6).T)
