"""Fused multiply-adds and powers of two in NumPy, against fractions that an integer routine rounds to float32."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.elementary.functions import X

F32 = np.float32
FLOATS = st.floats(width=32)
NEAR_ONE = st.integers(-9, 9).map(lambda i: (1 + i * 2.0**-23, 1 - i * 2.0**-23))
"""Factors of a product that is 1, or less by some 2**-46."""
SIGNS = st.sampled_from([-1.0, 1.0])
LARGEST = 2.0**128 - 2.0**104
SPECIALS = (0.0, -0.0, 1.0, -1.5, 2.0**-149, -(2.0**-126), LARGEST, -LARGEST, math.inf, -math.inf, math.nan)


def rounded(exact: Fraction) -> float:
    """The float32 next to a number that is not 0; of two the even one, and infinity beyond the largest."""
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    count, rest = divmod(magnitude, unit)
    if 2 * rest > unit or (2 * rest == unit and count % 2):
        count += 1
    return math.copysign(math.inf if count * unit >= 2**128 else float(count * unit), exact)


def fused(a: float, b: float, c: float) -> float:
    """``a * b + c`` as IEEE 754 says."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return rounded(exact)
    return math.copysign(0.0, a) * math.copysign(1.0, b) + c if c == 0 else 0.0


def same(got: object, want: float) -> bool:
    value = float(got)  # type: ignore[arg-type]
    return (
        math.isnan(want) if math.isnan(value) else value == want and math.copysign(1, value) == math.copysign(1, want)
    )


def check(a: float, b: float, c: float) -> None:
    """As scalars, as one element, and among others."""
    want = fused(a, b, c)
    got = X.multiply_add(F32(a), F32(b), F32(c))
    assert got.dtype == np.float32 and np.ndim(got) == 0
    assert same(got, want), (a, b, c, got, want)
    row = X.multiply_add(F32([0.1, a, a]), F32(b), F32([0.3, c, c]))
    assert row.dtype == np.float32
    assert same(row[1], want) and same(row[2], want), (a, b, c, row, want)
    assert same(row[0], fused(float(F32(0.1)), b, float(F32(0.3))))


@given(a=FLOATS, b=FLOATS, c=FLOATS)
@example(2.0**-75, 2.0**-75, 0.0)
@example(-(2.0**-75), 2.0**-75, -0.0)
def test_any_numbers(a: float, b: float, c: float) -> None:
    check(a, b, c)


@given(c=st.integers(2**23, 2**24), exponent=st.integers(-90, 90), factors=NEAR_ONE, sign=SIGNS, other=SIGNS)
@example(2**23 + 1, 0, (1 + 2.0**-23, 1 - 2.0**-23), 1.0, 1.0)
@example(2**23 + 2, 0, (1 + 2.0**-23, 1 - 2.0**-23), -1.0, 1.0)
def test_products_next_to_half_an_ulp(
    c: int, exponent: int, factors: tuple[float, float], sign: float, other: float
) -> None:
    """The sum in float64 may be a tie that the exact sum is not: rounding twice would be wrong."""
    check(sign * math.ldexp(factors[0], exponent - 1), factors[1], other * math.ldexp(c, exponent))


@given(count=st.integers(-(2**23), 2**23), factors=NEAR_ONE, halves=st.integers(1, 9), sign=SIGNS)
@example(2**16 + 1, (1 + 2.0**-23, 1 - 2.0**-23), 1, 1.0)
@example(2**16, (1 + 2.0**-23, 1 - 2.0**-23), 1, -1.0)
def test_ties_of_subnormal_numbers(count: int, factors: tuple[float, float], halves: int, sign: float) -> None:
    check(halves * 2.0**-78 * sign, 2.0**-72, count * 2.0**-149)
    check(2.0**-75 * factors[0] * sign, 2.0**-75 * factors[1], count * 2.0**-149)


@given(factors=NEAR_ONE, sign=SIGNS)
def test_overflow(factors: tuple[float, float], sign: float) -> None:
    check(sign * 2.0**52 * factors[0], 2.0**51 * factors[1], sign * LARGEST)
    check(sign * 2.0**64 * factors[0], 2.0**64 * factors[1], -sign * LARGEST)
    check(sign * LARGEST, LARGEST, -sign * LARGEST)


@given(a=FLOATS, b=FLOATS)
def test_cancellation_leaves_what_rounding_a_product_took(a: float, b: float) -> None:
    with np.errstate(all="ignore"):
        check(a, b, -float(F32(a) * F32(b)))


@pytest.mark.parametrize("a", SPECIALS)
def test_special_values(a: float) -> None:
    for b in SPECIALS:
        for c in SPECIALS:
            check(a, b, c)


@pytest.mark.parametrize("bits", [0x7FC01234, 0xFFC00001, 0x7F800001])
def test_a_nan_keeps_its_bits_and_is_quiet(bits: int) -> None:
    nan, one = np.array([bits], np.uint32).view(F32), np.ones(1, F32)
    for got in (X.multiply_add(nan, one, one), X.multiply_add(one, nan, one), X.multiply_add(one, one, nan)):
        assert got.view(np.uint32)[0] == bits | 0x0040_0000
    assert X.scaled(nan, one).view(np.uint32)[0] == X.scaled(nan, nan).view(np.uint32)[0] == bits | 0x0040_0000


def test_the_routine_sees_sums_that_are_rounded_twice() -> None:
    a, b, c = 2.0**-24 * (1 + 2.0**-23), 1 - 2.0**-23, 1 + 2.0**-23
    assert float(F32(a * b + c)) == 1 + 2.0**-22
    assert fused(a, b, c) == c


def test_shapes_and_layouts() -> None:
    """Elements of all kinds in arrays of all kinds, and each of them alone."""
    random = np.random.default_rng(3)
    tile = np.where(random.random((24, 30)) < 0.3, 0, random.standard_normal((24, 30))).astype(F32)
    tile[::5] = 2.0**-75 * (1 + 2.0**-23)
    column, row = tile[:, 3:4], F32(2.0**-24) * tile[7]
    some = ((tile, column, row), (column, row, tile), (column, row, F32(1)), (F32(3), F32(2.0**-75), tile))
    for a, b, c in (*some, (tile.T, column.T, tile.T)):
        got = X.multiply_add(a, b, c)
        each = np.broadcast_arrays(a, b, c)
        alone = [X.multiply_add(*elements) for elements in zip(*[v.ravel() for v in each], strict=True)]
        assert got.shape == each[0].shape
        assert got.ravel().tobytes() == np.array(alone, F32).tobytes()
    assert X.multiply_add(np.zeros((3, 0), F32), F32(1), F32(1)).shape == (3, 0)


@given(a=FLOATS, n=st.integers(-320, 320) | st.sampled_from([2.0**30, -(2.0**30), 3e38, -3e38]))
@example(1 + 2.0**-23, -127)
@example(3.0, -150)
@example(1 - 2.0**-24, -126)
@example(2.0**-149, 277)
@example(LARGEST, -278)
def test_powers_of_two_round_once(a: float, n: float) -> None:
    bounded = int(max(-400, min(400, n)))
    want = rounded(Fraction(a) * Fraction(2) ** bounded) if math.isfinite(a) and a else a
    assert same(X.scaled(F32(a), F32(n)), want)
    assert same(X.scaled(F32([1, a]), F32([0, n]))[1], want)


@given(a=FLOATS.filter(math.isfinite), sign=SIGNS)
def test_infinite_powers_of_two(a: float, sign: float) -> None:
    want = a * math.inf if sign > 0 and a else math.copysign(0.0, a)
    assert same(X.ldexp(F32(a), F32(sign * math.inf)), want)
