"""Registers: where their values come from, how wide they are, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.core.errors import ArgumentError, ExecutionError
from nki.isa.register import register_alloc, register_load, register_move, register_store
from nki.spec.sink import current_sink
from tests.isa.tiles import bits_of, floats, store
from tests.isa.tiles import dma_load as load
from tests.support import both, rejection

ONE = np.array([[5]], np.int32)


def stored(register: Any, dtype: Any = np.int32) -> Any:
    out = nl.ndarray((1, 1), dtype, buffer=nl.shared_hbm)
    register_store(out, register)
    return out


@given(st.integers(-(2**31), 2**32 - 1), st.sampled_from([np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8]))
def test_a_store_keeps_the_low_bits(value: int, dtype: Any) -> None:
    result = both(lambda a: stored(register_alloc(value), dtype), ONE)
    bits = 8 * np.dtype(dtype).itemsize
    low = value % 2**bits
    wanted = low - 2**bits if np.dtype(dtype).kind == "i" and low >= 2 ** (bits - 1) else low
    assert int(result[0, 0]) == wanted


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8])
@pytest.mark.parametrize("in_sbuf", [True, False])
def test_a_load_keeps_the_value_of_every_integer(dtype: Any, in_sbuf: bool) -> None:
    info = np.iinfo(dtype)
    for value in (info.min, info.max, 3):
        data = np.array([[value]], dtype)
        result = both(lambda a: stored(register_alloc(load(a) if in_sbuf else a), dtypes.int32), data)
        assert int(result[0, 0]) == (value if value < 2**31 else value - 2**32)


@pytest.mark.parametrize("bits", [0x3F800000, 0x80000000, 0x7FC01234, 0x7F812345, 1])
def test_a_float_is_loaded_and_stored_as_bits(bits: int) -> None:
    data = floats(bits).reshape(1, 1)
    assert bits_of(both(lambda a: stored(register_alloc(a), np.uint32), data))[0, 0] == bits
    assert bits_of(both(lambda a: stored(register_alloc(a), np.float32), data))[0, 0] == bits


def test_a_register_takes_a_one_dimensional_tensor() -> None:
    assert both(lambda a: stored(register_alloc(a)), np.array([42], np.int32))[0, 0] == 42


def test_numpy_integers_are_constants() -> None:
    assert both(lambda a: stored(register_alloc(np.int64(-4))), ONE)[0, 0] == -4


def test_a_copy_does_not_follow_its_source() -> None:
    def kernel(a: Any) -> Any:
        first = register_alloc(1)
        second = register_alloc()
        register_move(dst=second, src=first)
        register_move(first, 2)
        return stored(second), stored(first)

    assert [int(r[0, 0]) for r in both(kernel, ONE)] == [1, 2]


def test_a_register_without_value_cannot_be_read() -> None:
    error = rejection(lambda a: stored(register_alloc()), ONE)
    assert error.code == "register.uninitialized" and isinstance(error, ExecutionError)
    assert error.fix and error.location.frames


@pytest.mark.parametrize("value", [1.0, True, "3", [1]])
def test_a_register_starts_with_an_integer_or_a_tensor(value: Any) -> None:
    error = rejection(lambda a: stored(register_alloc(value)), ONE)
    assert error.code == "operand.kind" and isinstance(error, ArgumentError) and error.fix


def test_a_register_is_not_a_first_value() -> None:
    error = rejection(lambda a: stored(register_alloc(register_alloc(1))), ONE)
    assert error.code == "operand.kind" and "register_move" in error.fix


@pytest.mark.parametrize("dtype", [np.float16, dtypes.float8_e4m3fn_x4])
def test_other_dtypes_have_no_register_form(dtype: Any) -> None:
    assert rejection(lambda a: stored(register_alloc(1), dtype), ONE).code == "operand.dtype"


def test_psum_is_out_of_reach() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((1, 1), np.int32, buffer=nl.psum)
        nisa.memset(dst=tile, value=1)
        return stored(register_alloc(tile))

    assert rejection(kernel, ONE).code == "operand.region"


def test_a_register_of_another_call_is_refused() -> None:
    kept: list[Any] = []

    def kernel(a: Any) -> Any:
        kept.append(register_alloc(1))
        return stored(kept[0])

    nki.simulate(kernel)(ONE)
    assert rejection(kernel, ONE).code == "operand.kind"


def test_registers_bound_and_steer_loops() -> None:
    """Sums the first n elements, n from a tensor, with a register as index; then halves while the rest is not 0."""

    def kernel(a: Any, n: Any) -> Any:
        tile = load(a)
        total = nl.ndarray((1, 1), np.int32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0)
        sink = current_sink("loops")

        def add(index: Any) -> None:
            element = tile.ap([[8, 1], [1, 1]], scalar_offset=index, indirect_dim=1)
            nisa.tensor_tensor(dst=total, data1=total, data2=element, op=nl.add)

        sink.for_loop(0, register_alloc(n), 1, add)
        rest, trips = load(n), nl.ndarray((1, 1), np.int32, buffer=nl.sbuf)
        nisa.memset(dst=trips, value=0)
        left = register_alloc(rest)

        def halve(register: Any) -> Any:
            nisa.tensor_scalar(dst=rest, data=rest, op0=nl.right_shift, operand0=1)
            nisa.tensor_scalar(dst=trips, data=trips, op0=nl.add, operand0=1.0)
            register_load(register, rest)
            return register

        sink.while_loop(left, halve)
        return store(total), store(trips), stored(left)

    data = np.array([[1, 10, 100, 1000, 10000, 7, 7, 7]], np.int32)
    results = both(kernel, data, ONE)
    assert [int(r[0, 0]) for r in results] == [11111, 3, 0]


def test_an_immediate_by_its_old_name_is_told_what_to_write() -> None:
    def old(a: Any) -> Any:
        register = register_alloc()
        register_move(register, imm=42)
        return stored(register)

    error = rejection(old, ONE)
    assert error.code == "call.deprecated"
    assert error.message == "nisa.register_move(imm=42): src takes numbers as well as registers"
    assert error.fix == "write nisa.register_move(dst, number), or nisa.register_alloc(x=number) for a new register"


def test_that_works() -> None:
    def moved(a: Any) -> Any:
        register = register_alloc()
        register_move(register, 42)
        return stored(register), stored(register_alloc(x=43))

    first, second = both(moved, ONE)
    assert (int(first[0, 0]), int(second[0, 0])) == (42, 43)
