"""Values that wait for their destination: one instruction where they are assigned, and the same values in any case."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.beta1.language as nl
import nki.isa as nisa
import nki.language
from nki.beta1.decorators import jit
from nki.core.errors import NkiError
from nki.driver.launch import trace_only
from nki.options import from_environment
from nki.target.load import load_target
from tests.beta1.test_kernels import both

ROW = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


def traced(kernel, *args):
    (trace,) = trace_only(kernel.launch(), args, {}, load_target("trn2"), from_environment())
    return [issued.instruction.name for issued in trace.program.body.walk()]


@jit
def read_after_it_was_assigned(x):
    out = nl.ndarray((3, 64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.sbuf)
    value = nl.load(x)
    tile[...] = value
    nl.store(out[0], tile)
    tile[...] = 7.0
    nl.store(out[1], value)
    nl.store(out[2], tile)
    return out


def test_a_value_stays_what_it_was_when_what_it_was_assigned_to_changes():
    assert np.array_equal(both(read_after_it_was_assigned, ROW), np.stack([ROW, ROW, np.full_like(ROW, 7)]))


@jit
def read_before_its_source_changes(x):
    out = nl.ndarray((2, 64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out[0], tile)
    value = nl.load(out[0])
    nl.store(out[0], nl.multiply(tile, 2.0))
    nl.store(out[1], value)
    return out


def test_a_value_is_computed_before_the_next_instruction():
    assert np.array_equal(both(read_before_its_source_changes, ROW), np.stack([2 * ROW, ROW]))


@jit
def assigned_in_a_loop(x):
    out = nl.ndarray((2, 64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((2, nl.par_dim(64), 32), dtype=x.dtype, buffer=nl.sbuf)
    value = nl.load(x)
    for i in nl.affine_range(2):
        tile[i] = value
        nl.store(out[i], tile[i])
    return out


def test_a_value_from_before_a_loop_keeps_its_promise():
    assert np.array_equal(both(assigned_in_a_loop, ROW), np.stack([ROW, ROW]))


@jit
def computed_twice_of_each_kind(x):
    """Operands of other memories, shapes, dtypes and places, numbers of other kinds, and what is read later."""
    out = nl.ndarray((2, 10, 64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    for trip in nl.sequential_range(2):
        a, column = nl.load(x), nl.load(x[:, 3 + trip : 4 + trip])
        narrow = nl.copy(a, dtype=nl.bfloat16)
        p = nl.ndarray((64, 32), nl.float32, buffer=nl.psum)
        p[...] = nl.copy(a)
        tiles = nl.ndarray((64, 10, 32), nl.float32)
        tiles[:, 0] = nl.add(a, column)
        tiles[:, 1] = nl.add(column, a, dtype=nl.bfloat16)
        tiles[:, 2] = nl.add(p, a)
        tiles[:, 3] = nl.add(a, p, mask=nl.arange(32)[None, :] < 20 + trip)
        tiles[:, 3, 20 + trip : 32] = 0
        tiles[:, 4] = nl.add(a, a)
        tiles[:, 5] = nl.add(narrow, a)
        value = nl.multiply(a, trip + 1)
        tiles[:, 6] = value
        tiles[:, 6] = nl.add(tiles[:, 6], tiles[:, 6])
        tiles[:, 7] = value
        tiles[:, 8] = nl.multiply(a, 1.5 if trip else 1)
        a[...] = nl.add(a, a)
        tiles[:, 9] = a
        for i in range(10):
            nl.store(out[trip, i], tiles[:, i])
    return out


def test_a_second_call_of_its_kind_gives_what_the_first_would():
    x = (ROW / 64).astype(np.float32)
    bf = lambda v: v.astype(ml_dtypes.bfloat16).astype(np.float32)  # noqa: E731
    wanted = []
    for trip in range(2):
        column, masked = x[:, 3 + trip : 4 + trip], 2 * x
        masked[:, 20 + trip :] = 0
        sums = [x + column, bf(x + column), x + x, masked, 2 * x, bf(x) + x]
        wanted.append([*sums, 2 * (trip + 1) * x, (trip + 1) * x, x * (1.5 if trip else 1), 2 * x])
    assert np.array_equal(both(computed_twice_of_each_kind, x), np.array(wanted, np.float32))


@jit
def sums_of_one_product(x, y):
    out = nl.ndarray((2, 32, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(x), nl.load(y)
    sums = nl.zeros((32, 16), nl.float32, buffer=nl.psum)
    product = nl.matmul(left, right, transpose_x=True)
    sums += product
    product += nl.matmul(left, right, transpose_x=True)
    sums += nl.matmul(left, right, transpose_x=True)
    nl.store(out[0], nl.copy(sums))
    nl.store(out[1], nl.add(product, 1.0))
    return out


def test_a_product_that_was_added_may_begin_a_sum_of_its_own():
    x, y = np.eye(64, 32, dtype=np.float32), np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
    assert np.array_equal(both(sums_of_one_product, x, y), np.stack([2 * (x.T @ y), 2 * (x.T @ y) + 1]))


@jit
def wrong_and_unread(x):
    out = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.matmul(tile, nl.load(x[0:32]), transpose_x=True)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("call", [wrong_and_unread, wrong_and_unread.simulated()])
def test_an_error_is_that_of_the_call(call):
    with pytest.raises(NkiError) as caught:
        call(ROW)
    assert caught.value.location.frame.line == wrong_and_unread.func.__code__.co_firstlineno + 4


@jit
def products(x, y):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    row, left, right = nl.arange(128)[:, None], nl.arange(128)[None, :], nl.arange(512)[None, :]
    sums = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(x.shape[0] // 128):
        one = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        one[row, left] = nl.load(x[k * 128 + row, left])
        other = nl.load(y[k * 128 + row, right])
        sums += nl.matmul(one[row, left], other[row, right], transpose_x=True)
    nl.store(out, value=nl.copy(sums))
    return out


@nki.jit
def products_of_today(x, y):
    today = nki.language
    out = today.ndarray((128, 512), x.dtype, today.shared_hbm)
    sums = today.ndarray((128, 512), today.float32, today.psum)
    for k in range(x.shape[0] // 128):
        one = today.ndarray((128, 128), x.dtype)
        nisa.dma_copy(dst=one, src=x[k * 128 : k * 128 + 128])
        other = today.load(y[k * 128 : k * 128 + 128])
        nisa.nc_matmul(dst=sums, stationary=one, moving=other, accumulate=k > 0)
    today.store(out, today.copy(sums))
    return out


@jit
def sums_of_tiles(x, y):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.load(x[0:128])
    for k in nl.affine_range(x.shape[0] // 128):
        one = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        other = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        one[...] = nl.load(x[k * 128 : k * 128 + 128])
        other[...] = nl.exp(one)
        one[...] = nl.multiply(other, 0.5)
        total += one
    nl.store(out, value=total)
    return out


@nki.jit
def sums_of_tiles_of_today(x, y):
    today = nki.language
    out = today.ndarray((128, 128), x.dtype, today.shared_hbm)
    total = today.load(x[0:128])
    for k in range(x.shape[0] // 128):
        one = today.ndarray((128, 128), x.dtype)
        other = today.ndarray((128, 128), x.dtype)
        nisa.dma_copy(dst=one, src=x[k * 128 : k * 128 + 128])
        nisa.activation(dst=other, op=today.exp, data=one)
        nisa.tensor_scalar(dst=one, data=other, op0=today.multiply, operand0=0.5)
        nisa.tensor_tensor(dst=total, data1=total, data2=one, op=today.add)
    today.store(out, total)
    return out


def steps(kernel, trips: int) -> int:
    """How many functions of Python a trace calls."""
    args = np.zeros((128 * trips, 128), np.float32), np.zeros((128 * trips, 512), np.float32)
    traced(kernel, *args)  # what is kept for later traces is made
    calls = 0

    def count(frame: object, event: str, value: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        traced(kernel, *args)
    finally:
        sys.setprofile(before)
    return calls


PAIRS = [(products, products_of_today, 4), (sums_of_tiles, sums_of_tiles_of_today, 7)]
"""Kernels, those of today with the same instructions, and how many times as much a trip of the first may cost."""


@pytest.mark.parametrize(("old", "new", "bound"), PAIRS)
def test_the_instructions_are_those_of_today(old, new, bound):
    x, y = np.zeros((512, 128), np.float32), np.zeros((512, 512), np.float32)
    assert traced(old, x, y) == traced(new, x, y)


@pytest.mark.parametrize(("old", "new", "bound"), PAIRS)
def test_a_trip_costs_a_few_times_as_much_as_today(old, new, bound):
    first, today = (steps(kernel, 24) - steps(kernel, 8) for kernel in (old, new))
    assert first < bound * today, f"{first / 16:.0f} calls a trip, {today / 16:.0f} today"
