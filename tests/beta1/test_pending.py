"""Values that wait for their destination: one instruction where they are assigned, and the same values in any case."""

from __future__ import annotations

import sys

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


def test_the_instructions_are_those_of_today():
    x, y = np.zeros((512, 128), np.float32), np.zeros((512, 512), np.float32)
    assert traced(products, x, y) == traced(products_of_today, x, y)


def test_a_trip_costs_a_few_times_as_much_as_today():
    first, today = (steps(kernel, 24) - steps(kernel, 8) for kernel in (products, products_of_today))
    assert first < BOUND * today, f"{first / 16:.0f} calls a trip, {today / 16:.0f} today"


BOUND = 4
"""What a loop costs to trace in functions called, compared with a kernel of today with the same instructions."""
