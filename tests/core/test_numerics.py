"""Rounding against exact fractions, torch and ml_dtypes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nki.core import dtypes
from nki.core.dtypes import BY_NAME, DType, as_dtype, unpack_x4
from nki.core.errors import DtypeError
from nki.core.numerics import FP32_MAX, FP32_MIN, poison, poison_fill, round_to, stochastic_round, to_f32
from tests.oracles.casts import cast
from tests.together import together

# kept mantissa bits, exponent of the smallest normal number
FORMATS = {
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "tfloat32": (10, -126),
    "float8_e4m3": (3, -6),
    "float8_e4m3fn": (3, -6),
    "float8_e5m2": (2, -14),
}
NARROW = [BY_NAME[name] for name in FORMATS]
FLOATS = [dtypes.float32, *NARROW]
INTEGERS = [dtype for dtype in BY_NAME.values() if dtype.is_integer]
UNPACKED = [dtype for dtype in BY_NAME.values() if not dtype.is_packed]
PACKED = [dtype for dtype in BY_NAME.values() if dtype.is_packed]

# every upper half of a float32 with the lower halves where rounding can turn: 655,360 values
HALVES = np.arange(1 << 16, dtype=np.uint32) << 16
LOWER = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
SWEEP = (HALVES[:, None] | LOWER).view(np.float32)

f32 = st.floats(width=32)
near_zero = st.integers(-(2**12), 2**12).map(lambda n: float(np.float32(math.ldexp(n, -30))))
near_edges = st.tuples(
    st.sampled_from([7, 8, 15, 16, 31, 32, 63, 64]), st.integers(-4, 4), st.sampled_from([-1, 1])
).map(lambda t: t[2] * float(np.nextafter(np.float32(2.0 ** t[0]), np.float32(t[1] * np.inf if t[1] else 2.0 ** t[0]))))
halves = st.integers(-(2**17), 2**17).map(lambda n: n / 2)
numbers = f32 | near_zero | near_edges | halves


@pytest.fixture(autouse=True)
def no_warning_escapes() -> Iterator[None]:
    """Neither as a warning nor where the caller has made numpy strict."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        yield


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def same_bits(left: np.ndarray, right: np.ndarray) -> None:
    assert left.dtype == right.dtype
    word = f"u{left.dtype.itemsize}"
    np.testing.assert_array_equal(left.view(word), right.view(word))


def quiet_astype(values: np.ndarray, dtype: type[np.generic]) -> np.ndarray:
    with np.errstate(all="ignore"):
        result: np.ndarray = values.astype(dtype)
    return result


def nearest(value: float, dtype: DType) -> float:
    """Round to nearest even with exact fractions; what overflows is infinite, or NaN where there is no infinity."""
    if math.isnan(value) or (math.isinf(value) and dtype is not dtypes.float8_e4m3fn):
        return value
    if math.isinf(value):
        return math.nan
    if value == 0:
        return value
    mantissa, lowest = FORMATS[dtype]
    exact = Fraction(value)
    exponent = max(math.frexp(value)[1] - 1, lowest)
    unit = Fraction(2) ** (exponent - mantissa)
    rounded = round(exact / unit) * unit
    if abs(rounded) > Fraction(dtype.max):
        return math.nan if dtype is dtypes.float8_e4m3fn else math.copysign(math.inf, value)
    return math.copysign(float(abs(rounded)), value)


def assert_same(got: float, expected: float) -> None:
    if math.isnan(expected):
        assert math.isnan(got)
    else:
        assert got == expected and math.copysign(1, got) == math.copysign(1, expected)


# ---- rounding to floats


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@settings(max_examples=150, deadline=None)
@given(value=numbers)
@example(value=0.0).via("zero")
@example(value=-0.0).via("negative zero")
@example(value=FP32_MAX).via("overflow")
@example(value=-math.inf).via("infinity")
@example(value=math.nan).via("NaN")
@example(value=2.0**-149).via("smallest subnormal")
def test_floats_round_to_nearest_even(dtype: DType, value: float) -> None:
    got = to_f32(round_to(array(value), dtype), dtype)
    assert_same(float(got[0]), nearest(value, dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_ties_and_the_edge_of_overflow(dtype: DType) -> None:
    mantissa, lowest = FORMATS[dtype]
    top = math.frexp(dtype.max)[1] - 1
    values = [float(np.float32(s * (1 + k / 2 ** (mantissa + 1)) * 2.0**e)) for s in (1, -1) for k in range(16)
              for e in (0, 1, lowest, top)]  # fmt: skip
    values += [k * 2.0 ** (lowest - mantissa - 1) for k in range(-16, 17)]
    half_step = 2.0 ** (top - mantissa - 1)
    limit = np.float32(dtype.max + half_step)
    values += [dtype.max, float(limit), float(np.nextafter(limit, np.float32(0))), -float(limit)]
    if dtype.max < 1e30:
        values.append(float(np.nextafter(limit, np.float32(np.inf))))
    got = to_f32(round_to(np.array(values, np.float32), dtype), dtype)
    for value, result in zip(values, got, strict=True):
        assert_same(float(result), nearest(value, dtype))


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16"])
def test_sweep_equals_ml_dtypes_bit_for_bit(name: str) -> None:
    """But for what lies next to the smallest power of two, which ml_dtypes rounds up instead of to the nearest."""
    low, high = (2.0**-127, 1.5 * 2.0**-127) if name == "float8_e8m0fnu" else (0.0, 0.0)
    compared = SWEEP[~((low <= SWEEP) & (high > SWEEP))]
    same_bits(round_to(compared, as_dtype(name)), quiet_astype(compared, getattr(ml_dtypes, name)))


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e5m2"])
def test_sweep_equals_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    expected = torch.from_numpy(SWEEP.copy()).to(getattr(torch, name)).float().numpy()
    got = to_f32(round_to(SWEEP, as_dtype(name)), as_dtype(name))
    number = ~np.isnan(SWEEP)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    same_bits(got[number], expected[number])


def test_tfloat32_keeps_ten_bits() -> None:
    got = round_to(SWEEP, dtypes.tfloat32)
    finite = np.isfinite(SWEEP)
    assert not (got.view(np.uint32)[finite] & 0x1FFF).any()
    same_bits(got[~finite], SWEEP[~finite])
    # the same rounding at double precision: Dekker's splitting of 24 bits into 11 and 13 within float64
    normal = finite & (np.abs(SWEEP) > 2.0**-120) & (np.abs(SWEEP) < 1e38)
    wide = SWEEP[normal].astype(np.float64)
    factor = wide * (2.0**42 + 1)
    np.testing.assert_array_equal(got[normal].astype(np.float64), factor - (factor - wide))


def test_overflow_of_each_float() -> None:
    big = array(1e30, -1e30, np.inf, -np.inf)
    for name in ("float16", "float8_e4m3", "float8_e5m2"):
        assert to_f32(round_to(big, BY_NAME[name]), BY_NAME[name]).tolist() == [np.inf, -np.inf, np.inf, -np.inf]
    assert np.isnan(to_f32(round_to(big, dtypes.float8_e4m3fn), dtypes.float8_e4m3fn)).all()
    edge = round_to(array(464.0, np.nextafter(np.float32(464), np.float32(500))), dtypes.float8_e4m3fn)
    assert edge[0] == 448 and np.isnan(edge[1])


def test_scales_are_powers_of_two() -> None:
    values = array(1.0, 1.49, 1.5, 2.9, 3.1, 0.0, -1.0, np.nan, np.inf, 2.0**-127, 2.0**-149, 2.0**127)
    codes = round_to(values, dtypes.float8_e8m0fnu).view(np.uint8)
    assert codes.tolist() == [127, 127, 128, 128, 129, 255, 255, 255, 255, 0, 0, 254]
    every = np.arange(255, dtype=np.uint8)
    exact = [math.ldexp(1.0, int(code) - 127) for code in every]
    assert to_f32(every.view(ml_dtypes.float8_e8m0fnu), dtypes.float8_e8m0fnu).tolist() == exact


@pytest.mark.parametrize("dtype", [d for d in (*NARROW, dtypes.float8_e8m0fnu) if d.itemsize <= 2], ids=str)
def test_every_bit_pattern_round_trips(dtype: DType) -> None:
    word = f"u{dtype.itemsize}"
    codes = np.arange(1 << dtype.bits, dtype=word)
    values = to_f32(codes.view(dtype.numpy), dtype)
    same_bits(values, codes.view(dtype.numpy).astype(np.float32))
    again = round_to(values, dtype).view(word)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(again[number], codes[number])
    assert np.isnan(to_f32(again.view(dtype.numpy), dtype)[~number]).all()


# ---- rounding to integers and bool


def saturated(value: float, dtype: DType) -> int:
    info = np.iinfo(dtype.numpy)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return int(info.max) if value > 0 else int(info.min)
    return max(int(info.min), min(int(info.max), round(Fraction(value))))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@settings(max_examples=150, deadline=None)
@given(value=numbers)
@example(value=math.inf).via("infinity")
@example(value=-math.inf).via("negative infinity")
@example(value=math.nan).via("NaN")
@example(value=-0.5).via("tie at zero")
def test_integers_round_to_nearest_even_and_saturate(dtype: DType, value: float) -> None:
    assert int(round_to(array(value), dtype)[0]) == saturated(value, dtype)


def test_ends_of_the_integer_ranges() -> None:
    values = array(2.0**31, 2147483520.0, 3e9, -(2.0**31), -3e9, 2.5, 3.5, -0.5)
    assert round_to(values, dtypes.int32).tolist() == [
        2**31 - 1, 2147483520, 2**31 - 1, -(2**31), -(2**31), 2, 4, 0,
    ]  # fmt: skip
    assert round_to(array(2.0**32, 4294967040.0, -1.0), dtypes.uint32).tolist() == [2**32 - 1, 4294967040, 0]
    assert round_to(array(127.5, 127.49, -128.5, -129.0), dtypes.int8).tolist() == [127, 127, -128, -128]
    assert round_to(array(2.0**63, 2.0**64), dtypes.int64).tolist() == [2**63 - 1] * 2
    assert round_to(array(2.0**63, 2.0**64), dtypes.uint64).tolist() == [2**63, 2**64 - 1]


@given(st.integers(-(2**31), 2**31 - 1))
@example(2**31 - 1)
@example(2**24 + 1)
@example(-(2**31))
def test_wide_integers_round_to_nearest_even(number: int) -> None:
    got = to_f32(np.array([number], np.int32), dtypes.int32)
    exponent = max(abs(number).bit_length() - 24, 0)
    assert int(got[0]) == round(Fraction(number, 2**exponent)) * 2**exponent


def test_bool() -> None:
    assert round_to(array(0.0, -0.0, 1.0, -2.0, 2.0**-149, np.nan), dtypes.bool_).tolist() == [
        False, False, True, True, True, True,
    ]  # fmt: skip
    stored = np.array([0, 1, 4, 255], np.uint8).view(bool)
    assert to_f32(stored, dtypes.bool_).tolist() == [0, 1, 1, 1]


# ---- shapes, copies, errors


@together("dtype", UNPACKED)
@together("shape", [(), (0,), (5,), (3, 4), (2, 1, 3)])
def test_shapes(dtype: DType, shape: tuple[int, ...]) -> None:
    stored = round_to(np.ones(shape, np.float32), dtype)
    assert type(stored) is np.ndarray
    assert stored.shape == shape and stored.dtype == dtype.numpy
    values = to_f32(stored, dtype)
    assert type(values) is np.ndarray
    assert values.shape == shape and values.dtype == np.float32
    assert (values == 1).all()


@pytest.mark.parametrize("dtype", UNPACKED, ids=str)
def test_strides_do_not_matter(dtype: DType) -> None:
    values = np.linspace(0.5, 100, 96, dtype=np.float32).reshape(8, 12)
    view = values.T[::2, ::-1]
    expected = round_to(np.ascontiguousarray(view), dtype)
    same_bits(np.ascontiguousarray(round_to(view, dtype)), expected)
    reversed_ = np.ascontiguousarray(expected[::-1])[::-1]
    np.testing.assert_array_equal(to_f32(reversed_, dtype), to_f32(expected, dtype))


def test_no_copy_where_none_is_needed() -> None:
    values = array(1, 2, 3)
    assert np.shares_memory(to_f32(values, dtypes.float32), values)
    assert np.shares_memory(to_f32(values, dtypes.tfloat32), values)
    assert np.shares_memory(round_to(values, dtypes.float32), values)


@pytest.mark.parametrize("dtype", UNPACKED, ids=str)
def test_the_argument_is_not_changed(dtype: DType) -> None:
    values = array(1.3, -2.7, np.nan, 1e30, -0.0)
    before = values.copy()
    round_to(values, dtype)
    same_bits(values, before)


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_packed_types_have_no_cast(dtype: DType) -> None:
    stored, values = np.zeros(4, dtype.numpy), np.zeros(4, np.float32)
    same_bits(cast(stored, dtype, dtype), stored)
    with pytest.raises(DtypeError, match="has no cast") as error:
        to_f32(stored, dtype)
    assert error.value.code == "dtype.packed" and "unpack_x4" in error.value.fix
    with pytest.raises(DtypeError, match="has no cast") as error:
        round_to(values, dtype)
    assert error.value.code == "dtype.packed" and "pack_x4" in error.value.fix
    with pytest.raises(DtypeError, match="has no cast"):
        cast(stored, dtype, dtypes.float32)
    with pytest.raises(DtypeError, match="has no cast"):
        cast(values, dtypes.float32, dtype)


def test_cast_within_a_type_keeps_bits() -> None:
    number = np.array([2**31 - 1, 2**24 + 1, -(2**31)], np.int32)
    same_bits(cast(number, dtypes.int32, dtypes.int32), number)
    payload = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    result = cast(payload, dtypes.float32, dtypes.float32)
    same_bits(result, payload)
    assert not np.shares_memory(result, payload)


def test_cast_between_types_goes_through_float32() -> None:
    assert cast(np.array([2**31 - 1, 2**24 + 1], np.int32), dtypes.int32, dtypes.uint32).tolist() == [2**31, 2**24]
    assert cast(np.array([300, -5], np.int16), dtypes.int16, dtypes.uint8).tolist() == [255, 0]
    values = array(1.0, 2.0)
    result = cast(values, dtypes.tfloat32, dtypes.float32)
    same_bits(result, values)
    assert not np.shares_memory(result, values)
    assert cast(array(1 + 2.0**-12), dtypes.float32, dtypes.tfloat32).tolist() == [1.0]


def test_float32_limits() -> None:
    assert array(FP32_MAX, FP32_MIN).view(np.uint32).tolist() == [0x7F7FFFFF, 0xFF7FFFFF]


# ---- stochastic rounding


def words(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_stochastic_rounding_turns_at_the_distance(dtype: DType) -> None:
    mantissa, lowest = FORMATS[dtype]
    for start, unit in ((1.0, 2.0**-mantissa), (-1.0, 2.0**-mantissa), (2.0**lowest, 2.0 ** (lowest - mantissa))):
        step = math.copysign(unit, start)
        value = array(*[start + step / 4] * 4)
        got = to_f32(stochastic_round(value, dtype, words(0, 0xBFFF_FFFF, 0xC000_0000, 0xFFFF_FFFF)), dtype)
        assert got.tolist() == [start, start, start + step, start + step]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_stochastic_rounding_keeps_what_is_representable(dtype: DType) -> None:
    with np.errstate(all="ignore"):
        values = to_f32(round_to(SWEEP[:, ::3], dtype), dtype)
    for word in (0, 1, 0x8000_0000, 0xFFFF_FFFF):
        got = stochastic_round(values, dtype, np.full(values.shape, word, np.uint32))
        same_bits(got, round_to(values, dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@settings(max_examples=60, deadline=None)
@given(value=f32 | near_zero, word=st.integers(0, 2**32 - 1))
def test_stochastic_rounding_against_fractions(dtype: DType, value: float, word: int) -> None:
    got = float(to_f32(stochastic_round(array(value), dtype, words(word)), dtype)[0])
    if not math.isfinite(value) or value == 0:
        assert_same(got, nearest(value, dtype))
        return
    mantissa, lowest = FORMATS[dtype]
    unit = Fraction(2) ** (max(math.frexp(value)[1] - 1, lowest) - mantissa)
    scaled = abs(Fraction(value)) / unit
    up = (scaled - math.floor(scaled)) * 2**32 // 1 + word >= 2**32
    exact = float((math.floor(scaled) + up) * unit)
    assert_same(got, nearest(math.copysign(exact, value), dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@together("binade", [1.0, -1.0, 0.0])
def test_stochastic_rounding_is_unbiased(dtype: DType, binade: float) -> None:
    """The mean of n draws is off by less than five standard deviations, each at most half a unit / sqrt(n)."""
    mantissa, lowest = FORMATS[dtype]
    unit = 2.0 ** ((0 if binade else lowest) - mantissa)
    draws = 20_000
    random = np.random.default_rng(7).integers(0, 2**32, draws, dtype=np.uint32)
    for fraction in (0.1, 0.37, 0.5, 0.93):
        value = np.float32(binade + fraction * unit)
        got = to_f32(stochastic_round(np.full(draws, value), dtype, random), dtype).astype(np.float64)
        assert set(np.abs(np.unique(got) - float(value)) < unit) == {True}
        assert abs(got.mean() - float(value)) < 5 * 0.5 * unit / math.sqrt(draws)


def test_stochastic_rounding_is_for_floats() -> None:
    for dtype in (dtypes.int32, dtypes.bool_, dtypes.float8_e8m0fnu, dtypes.float8_e5m2_x4):
        with pytest.raises(DtypeError) as error:
            stochastic_round(array(1.0), dtype, words(0))
        assert error.value.code == "dtype.stochastic"


# ---- unwritten storage


@together("dtype", BY_NAME.values())
def test_poison(dtype: DType) -> None:
    storage = np.zeros((3, 48), np.uint8)
    poison_fill(storage[:2, 8:40], dtype)
    assert not storage[2].any() and not storage[:, :8].any() and not storage[:, 40:].any()
    filled = storage[:2, 8:40].copy().view(dtype.numpy)
    values = unpack_x4(filled, dtype) if dtype.is_packed else to_f32(filled, dtype)
    if dtype.is_integer or dtype is dtypes.float4_e2m1fn_x4:
        assert (values == 4).all() and poison(dtype) == 4
    elif dtype is dtypes.bool_:
        assert storage[0, 8] == 1 and poison(dtype) is True
    else:
        assert np.isnan(values).all() and math.isnan(poison(dtype))
