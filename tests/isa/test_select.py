"""Values of iota, affine_select, range_select, select_reduce and sequence_bounds beyond their examples."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as family
import nki.language as nl
from nki.isa import alu
from nki.isa.elementwise import tensor_tensor
from nki.spec.engine import reduce_cmd
from nki.spec.sink import current_sink
from tests.isa.examples.select import FP32_MIN, affine, make_range
from tests.isa.tiles import filled, load, nothing, store
from tests.support import both, rejection

INT32_MAX = 2**31 - 1


# --- iota


def iota_of(shape: Any, dtype: Any, pattern: Any, **options: Any) -> Any:
    def kernel(_: Any) -> Any:
        tile = nl.ndarray(shape, dtype, buffer=nl.sbuf)
        family.iota(tile, pattern, **options)
        return store(tile)

    return both(kernel, *nothing())


@settings(max_examples=20, deadline=None)
@given(
    partitions=st.integers(1, 9),
    pattern=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(1, 4)), min_size=1, max_size=4),
    offset=st.integers(-(2**31), 2**31 - 1),
    multiplier=st.integers(-(2**31), 2**31 - 1),
)
def test_iota_is_the_documented_loop_nest_in_wrapping_int32(
    partitions: int, pattern: Any, offset: int, multiplier: int
) -> None:
    wanted = affine(partitions, pattern, offset, multiplier)
    got = iota_of((partitions, wanted.shape[1]), np.int32, pattern, offset=offset, channel_multiplier=multiplier)
    np.testing.assert_array_equal(got, wanted)


def test_iota_keeps_integers_that_float32_cannot_hold() -> None:
    np.testing.assert_array_equal(iota_of((1, 3), np.int32, [[1, 3]], offset=2**24)[0], [2**24, 2**24 + 1, 2**24 + 2])
    np.testing.assert_array_equal(iota_of((1, 2), np.uint32, [[1, 2]], offset=-1)[0], [2**32 - 1, 0])


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (np.int8, [-128, -128, -128, 0, 127]),
        (np.uint8, [0, 0, 0, 0, 255]),
        (np.int16, [-600, -400, -200, 0, 200]),
        (ml_dtypes.bfloat16, [-600, -400, -200, 0, 200]),
        (np.bool_, [1, 1, 1, 0, 1]),
    ],
)
def test_iota_casts_by_rounding_and_saturation(dtype: Any, wanted: list[int]) -> None:
    scale = 2 if dtype == np.uint8 else 1
    got = iota_of((1, 5), dtype, [[200 * scale, 5]], offset=-600 * scale)
    np.testing.assert_array_equal(got[0].astype(np.float32), wanted)


def test_iota_writes_a_strided_destination_in_row_major_order() -> None:
    def kernel(_: Any) -> Any:
        tile = filled((2, 3, 8), -9, np.int32)
        family.iota(tile[:, :, 0:8:2], [[1, 12]], channel_multiplier=100)
        return store(tile)

    wanted = np.full((2, 3, 8), -9)
    wanted[:, :, ::2] = np.stack([np.arange(12), np.arange(12) + 100]).reshape(2, 3, 4)
    np.testing.assert_array_equal(both(kernel, *nothing()), wanted)


def test_registers_are_offsets_of_iota_and_affine_select() -> None:
    def kernel(_: Any) -> Any:
        total, kept = filled((2, 4), dtype=np.int32), filled((2, 4), dtype=np.int32)
        ones, tile = filled((2, 4), 1, np.int32), filled((2, 4), dtype=np.int32)

        def body(index: Any) -> None:
            family.iota(tile, [[1, 4]], offset=index, channel_multiplier=10)
            tensor_tensor(total, total, tile, alu.ADD)
            family.affine_select(tile, [[-1, 4]], 0, ones, 0, alu.GREATER_EQUAL, offset=index)
            tensor_tensor(kept, kept, tile, alu.ADD)

        current_sink("test").for_loop(1, 4, 1, body)
        return store(total), store(kept)

    total, kept = both(kernel, *nothing())
    np.testing.assert_array_equal(total, [[6, 9, 12, 15], [36, 39, 42, 45]])
    np.testing.assert_array_equal(kept, [[3, 3, 2, 1]] * 2)


def test_iota_needs_sbuf_and_a_dtype_that_casts() -> None:
    def psum(_: Any) -> None:
        family.iota(nl.ndarray((1, 4), np.float32, buffer=nl.psum), [[1, 4]])

    assert rejection(psum, *nothing()).code == "operand.region"


# --- affine_select


def affine_select_of(a: np.ndarray, value: Any, dtype: Any = None, **options: Any) -> Any:
    def kernel(a: Any) -> Any:
        result = nl.ndarray(a.shape, dtype or a.dtype, buffer=nl.sbuf)
        options.setdefault("pattern", [[1, a.shape[1]]])
        family.affine_select(dst=result, channel_multiplier=0, on_true_tile=load(a), on_false_value=value, **options)
        return store(result)

    return both(kernel, a)


def test_affine_select_copies_bits_between_equal_dtypes() -> None:
    bits = np.array([[0x7F800001, 0xFFC12345, 0x80000000, 0x00000001, 0x7F7FFFFF]], np.uint32)
    got = affine_select_of(bits.view(np.float32), 0.0, cmp_op=alu.GREATER_EQUAL)
    np.testing.assert_array_equal(got.view(np.uint32), bits)
    integers = np.array([[INT32_MAX, INT32_MAX - 1, -(2**31)]], np.int32)
    np.testing.assert_array_equal(affine_select_of(integers, 0, cmp_op=alu.GREATER_EQUAL), integers)


def test_affine_select_passes_float32_between_different_dtypes() -> None:
    got = affine_select_of(np.array([[INT32_MAX, 2**24 + 1, 3]], np.int32), 0.5, np.uint32, cmp_op=alu.LESS_EQUAL)
    np.testing.assert_array_equal(got, [[2**31, 0, 0]])


@pytest.mark.parametrize(("dtype", "wanted"), [(np.int32, -(2**31)), (np.uint8, 0), (ml_dtypes.bfloat16, -np.inf)])
def test_affine_select_rounds_a_python_float_to_the_destination(dtype: Any, wanted: float) -> None:
    got = affine_select_of(np.ones((1, 2), dtype), float(np.finfo(np.float32).min))
    np.testing.assert_array_equal(got.astype(np.float64), [[1, wanted]])


def test_affine_select_evaluates_its_predicate_in_int32() -> None:
    # in float32 2**24 + 1 equals 2**24, and without wrapping 2**31 is positive
    ones = np.ones((1, 3), np.float32)
    assert affine_select_of(ones, 0.0, offset=-(2**24), pattern=[[2**24 + 1, 3]]).tolist() == [[0, 0, 0]]
    got = affine_select_of(ones, 0.0, cmp_op=alu.GREATER, offset=INT32_MAX - 1)
    assert got.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize("name", ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"])
def test_affine_select_takes_every_comparison(name: str) -> None:
    operator = next(op for op in alu.COMPARISONS if op.name == name)
    got = affine_select_of(np.ones((1, 3), np.int16), 0, cmp_op=operator, offset=-1)
    assert got[0].tolist() == [int(getattr(np, name)(v, 0)) for v in (-1, 0, 1)]


def test_the_default_comparison_is_equal() -> None:
    assert inspect.signature(family.affine_select).parameters["cmp_op"].default is alu.EQUAL


# --- range_select


def range_data(a: Any, low: Any, high: Any) -> tuple[Any, ...]:
    column = lambda v: np.full((40, 2), v, np.float32)  # noqa: E731
    return np.array(np.broadcast_to(a, (40, 48)), np.float32), column(low), column(high)


def test_range_select_fills_with_the_smallest_float_by_default() -> None:
    got, largest = both(make_range(), *range_data(5.0, 3, 3))
    assert (got == np.finfo(np.float32).min).all()
    assert (largest == np.finfo(np.float32).min).all()


def test_range_select_keeps_the_maximum_finite_where_bfloat16_is_minus_infinity() -> None:
    got, largest = both(make_range(dtype=ml_dtypes.bfloat16), *range_data(5.0, 3, 3))
    assert np.isneginf(got.astype(np.float32)).all()
    assert (largest == np.float32(FP32_MIN)).all()


def test_range_select_reduces_before_it_rounds() -> None:
    _, largest = both(make_range(dtype=ml_dtypes.bfloat16), *range_data(1.001, 0, 48))
    assert (largest == np.float32(1.001)).all()


@pytest.mark.parametrize(
    ("op0", "op1", "kept"),
    [
        (alu.GREATER, alu.LESS_EQUAL, [4, 5]),
        (alu.EQUAL, alu.LESS, [3]),
        (alu.LESS, alu.EQUAL, []),
        (alu.GREATER_EQUAL, alu.EQUAL, [5]),
    ],
)
def test_range_select_combines_both_comparisons(op0: Any, op1: Any, kept: list[int]) -> None:
    got, _ = both(make_range(op0, op1), *range_data(1.0, 3, 5))
    assert np.flatnonzero(got[7] == 1.0).tolist() == kept


def test_range_select_passes_nan_on_and_ignores_what_it_drops() -> None:
    data = np.zeros((40, 48), np.float32)
    data[:, 10], data[:, 11] = np.nan, -np.inf
    got, largest = both(make_range(), *range_data(data, 11, 12))
    assert np.isneginf(got[:, 11]).all()
    assert (largest == np.float32(FP32_MIN)).all()
    got, largest = both(make_range(), *range_data(data, 10, 11))
    assert np.isnan(got[:, 10]).all() and np.isnan(largest).all()


def chained(commands: Any) -> Any:
    def kernel(a: Any, b: Any) -> Any:
        low, high = filled((4, 1), 0.0), filled((4, 1), 100.0)
        result, largest = nl.ndarray((4, 8), np.float32, buffer=nl.sbuf), filled((4, 1))
        for tile, command in zip((load(a), load(b)), commands, strict=True):
            family.range_select(
                dst=result,
                on_true_tile=tile,
                comp_op0=alu.GREATER_EQUAL,
                comp_op1=alu.LESS,
                bound0=low,
                bound1=high,
                reduce_cmd=command,
            )
        family.select_reduce(
            result, filled((4, 8), dtype=np.uint8), result, 0.25, largest, reduce_cmd=reduce_cmd.reduce
        )
        return store(largest)

    return kernel


@pytest.mark.parametrize(
    ("commands", "wanted"),
    [
        ((reduce_cmd.reset_reduce, reduce_cmd.reduce), lambda a, b: np.maximum(a.max(1), b.max(1))),
        ((reduce_cmd.reset_reduce, reduce_cmd.reset_reduce), lambda a, b: b.max(1)),
        ((reduce_cmd.reset, reduce_cmd.reduce), lambda a, b: b.max(1)),
    ],
)
def test_the_accumulator_goes_on_across_instructions(commands: Any, wanted: Any) -> None:
    r = np.random.default_rng(2)
    a, b = (r.standard_normal((4, 8)).astype(np.float32) for _ in "ab")
    got = both(chained(commands), a, b)
    np.testing.assert_array_equal(got[:, 0], np.maximum(wanted(a, b), 0.25).astype(np.float32))


@pytest.mark.parametrize("before", [None, reduce_cmd.idle])
def test_going_on_with_an_undefined_accumulator_is_reported(before: Any) -> None:
    def kernel(a: Any) -> Any:
        tile, largest, choice = load(a), filled((2, 1)), filled((2, 3), 1, np.uint8)
        if before is not None:
            family.select_reduce(tile, choice, tile, 0.0, reduce_cmd=reduce_cmd.reset_reduce)
            family.select_reduce(tile, choice, tile, 0.0, reduce_cmd=before)
        family.select_reduce(tile, choice, tile, 0.0, largest, reduce_cmd=reduce_cmd.reduce)
        return store(largest)

    with pytest.warns(UserWarning, match="accumulator.undefined"):
        assert np.isnan(both(kernel, np.ones((2, 3), np.float32))).all()


def test_range_select_does_not_exist_everywhere() -> None:
    error = rejection(make_range(), *range_data(1.0, 0, 1), target="trn1")
    assert error.code == "instruction.unavailable"


# --- select_reduce


@settings(max_examples=15, deadline=None)
@given(
    dtype=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16]),
    predicate=st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.bool_]),
    reverse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_select_reduce_selects_any_dtype_by_any_predicate(dtype: Any, predicate: Any, reverse: bool, seed: int) -> None:
    def kernel(a: Any, choice: Any, other: Any) -> Any:
        result = nl.ndarray(a.shape, np.float32, buffer=nl.sbuf)
        family.select_reduce(result, load(choice), load(a), load(other), reverse_pred=reverse)
        return store(result)

    r = np.random.default_rng(seed)
    a = (r.standard_normal((3, 10)) * 40).astype(np.float32).clip(0, 100).astype(dtype)
    choice = r.integers(0, 2, (3, 10)).astype(predicate)
    if predicate in (np.int16, np.uint16):
        choice *= 256  # true although the low byte is zero
    other = r.standard_normal((3, 1)).astype(np.float32)
    got = both(kernel, a, choice, other)
    for p in range(3):
        for i in range(10):
            assert got[p, i] == (a[p, i] if bool(choice[p, i]) != reverse else other[p, 0])


def test_select_reduce_defaults_to_idle() -> None:
    parameters = inspect.signature(family.select_reduce).parameters
    assert parameters["reduce_cmd"].default is reduce_cmd.idle
    assert inspect.signature(family.range_select).parameters["reduce_cmd"].default is reduce_cmd.reset_reduce


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_select_reduce_refuses_32_bit_integers(dtype: Any) -> None:
    def kernel(a: Any) -> None:
        tile = load(a)
        family.select_reduce(filled((2, 2)), filled((2, 2), dtype=np.uint8), tile, 0.0)

    assert rejection(kernel, np.ones((2, 2), dtype)).code == "operand.dtype"


def test_select_reduce_may_write_its_source() -> None:
    def kernel(a: Any) -> Any:
        tile, largest = load(a), nl.ndarray((2, 1), np.float32, buffer=nl.sbuf)
        family.select_reduce(tile, filled((2, 3), 1, np.uint8), tile, 0.0, largest, reduce_cmd.reset_reduce)
        return store(tile), store(largest)

    a = np.array([[1, 5, 2], [-7, -3, -9]], np.float32)
    got, largest = both(kernel, a)
    np.testing.assert_array_equal(got, a)
    assert largest[:, 0].tolist() == [5, -3]


# --- sequence_bounds


@settings(max_examples=20, deadline=None)
@given(ids=st.lists(st.integers(0, 3), min_size=1, max_size=24), floating=st.booleans())
def test_sequence_bounds_are_those_of_the_run(ids: list[int], floating: bool) -> None:
    def kernel(a: Any) -> Any:
        result = nl.ndarray((1, 2, a.shape[1]), np.int32, buffer=nl.sbuf)
        family.sequence_bounds(result, load(a))
        return store(result)

    n = len(ids)
    wanted: list[tuple[int, int]] = []
    for i in range(n):
        first, last = i, i
        while first and ids[first - 1] == ids[i]:
            first -= 1
        while last + 1 < n and ids[last + 1] == ids[i]:
            last += 1
        wanted.append((n, -1) if ids[i] == 0 else (first, last + 1))
    got = both(kernel, np.array([ids], np.float32 if floating else np.int32))
    np.testing.assert_array_equal(got[0].T, wanted)
