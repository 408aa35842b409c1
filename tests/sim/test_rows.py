"""Gathers and scatters of rows at run-time addresses, against loops over elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki.core.dtypes import DType, bfloat16, float32, int32
from nki.core.errors import ExecutionError
from nki.core.tensor import MemoryRegion, VectorOffset, View
from tests.sim.machines import Bench, numbers

F = np.float32
ROWS, WIDTH = 10, 12


def index(bench: Bench, values: list[int]) -> View:
    view = bench.tensor((len(values), 1), int32)
    bench.machine.store_raw(view, np.array(values, np.int32)[:, None])
    return view


@st.composite
def pieces(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Shape and strides of a row, and where it starts."""
    offset = draw(st.integers(0, WIDTH - 1))
    kind = draw(st.sampled_from(["block", "steps", "folded", "repeated"]))
    if kind == "block":
        return (draw(st.integers(1, WIDTH - offset)),), (1,), offset
    if kind == "steps":
        return (draw(st.integers(1, (WIDTH - 1 - offset) // 2 + 1)),), (2,), offset
    if kind == "folded":
        return (2, 3), (3, 1), min(offset, WIDTH - 6)
    return (3, 2), (0, 1), min(offset, WIDTH - 2)


def expected(view: View, rows: list[int]) -> list[list[int]]:
    """Element numbers, row by row."""
    dynamic = view.dynamic
    assert isinstance(dynamic, VectorOffset)
    one = view._replace(shape=(1, *view.shape[1:]), dynamic=None)
    return [[n + row * dynamic.scale for n in numbers(one)] for row in rows]


@settings(max_examples=120, deadline=None)
@given(pieces(), st.lists(st.integers(-2, ROWS + 1), min_size=1, max_size=6), st.sampled_from([float32, bfloat16]))
def test_gathered_rows(piece: tuple[tuple[int, ...], tuple[int, ...], int], rows: list[int], dtype: DType) -> None:
    shape, strides, offset = piece
    bench = Bench()
    hbm = bench.tensor((ROWS, WIDTH), dtype, MemoryRegion.private_hbm)
    half = hbm._replace(shape=(ROWS // 2, WIDTH))
    values = np.arange(ROWS // 2 * WIDTH, dtype=F).reshape(ROWS // 2, WIDTH)
    bench.machine.store(half, values)
    src = View(hbm.buffer, dtype, (len(rows), *shape), (WIDTH, *strides), offset, None)
    src = src._replace(dynamic=VectorOffset(index(bench, rows), WIDTH))
    dst = bench.tensor((len(rows), *shape), dtype)
    bench.machine.store(dst, F(-1))
    inside = [
        row >= 0 and all(0 <= n < ROWS * WIDTH for n in ns) for row, ns in zip(rows, expected(src, rows), strict=True)
    ]
    if not all(inside):
        with pytest.raises(ExecutionError):
            bench.machine.dma(dst, src, False)
    bench.warned()
    bench.machine.dma(dst, src, True)
    taken = [n for ns, fits in zip(expected(src, rows), inside, strict=True) if fits for n in ns]
    assert bench.warned() == any(n >= values.size for n in taken)
    got = np.asarray(bench.machine.load(dst)).reshape(len(rows), -1)
    for line, ns, fits in zip(got, expected(src, rows), inside, strict=True):
        for value, n in zip(line, ns, strict=True):
            want = -1 if not fits else values.reshape(-1)[n] if n < values.size else np.nan
            assert value == want or (np.isnan(want) and np.isnan(value))


@settings(max_examples=120, deadline=None)
@given(pieces(), st.lists(st.integers(-2, ROWS + 1), min_size=1, max_size=6))
def test_scattered_rows(piece: tuple[tuple[int, ...], tuple[int, ...], int], rows: list[int]) -> None:
    shape, strides, offset = piece
    bench = Bench()
    hbm = bench.tensor((ROWS, WIDTH), bfloat16, MemoryRegion.private_hbm)
    dst = View(hbm.buffer, bfloat16, (len(rows), *shape), (WIDTH, *strides), offset)
    dst = dst._replace(dynamic=VectorOffset(index(bench, rows), WIDTH))
    src = bench.tensor((len(rows), *shape), bfloat16)
    count = src.free_size
    bench.machine.store(src, np.arange(len(rows) * count, dtype=F).reshape(len(rows), count))
    bench.machine.dma(dst, src, True)
    model = np.full(ROWS * WIDTH, np.nan)
    for line, (row, ns) in enumerate(zip(rows, expected(dst, rows), strict=True)):
        if row >= 0 and all(0 <= n < model.size for n in ns):
            for i, n in enumerate(ns):
                model[n] = line * count + i
    bench.warned()
    got = np.asarray(bench.machine.load(hbm)).reshape(-1)
    assert bench.warned() == bool(np.isnan(model).any())
    assert np.array_equal(got, model, equal_nan=True)
