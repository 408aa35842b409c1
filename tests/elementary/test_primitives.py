"""The primitives of the NumPy namespace, against Python's integers and floats."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elementary.functions import X

I32 = st.integers(-(2**31), 2**31 - 1)
FLOATS = st.floats(width=32)


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


@given(i=I32, j=I32, count=st.integers(0, 31))
def test_integers_wrap(i: int, j: int, count: int) -> None:
    a, b = np.array([i], np.int32), X.int_constant(j)
    results = (
        (i - j, X.int_subtract(a, b)),
        (i & j, X.int_and(a, b)),
        (i ^ j, X.int_xor(a, b)),
        (i << count, X.shift_left(a, count)),
        (i >> count, X.shift_right(a, count)),
    )
    for want, got in results:
        assert got.dtype == np.int32
        assert int(got[0]) == wrapped(want)
    assert X.int_to_float(a)[0] == np.float32(i)


@given(a=FLOATS)
def test_bits(a: float) -> None:
    bits = struct.unpack("i", struct.pack("f", a))[0]
    got = X.float_bits(np.float32([a]))
    assert math.isnan(a) or int(got[0]) == bits
    assert X.bits_float(got).tobytes() == np.float32([a]).tobytes()
    assert X.bits_float(X.float_bits(np.float32(a))).tobytes() == np.float32(a).tobytes()


@given(a=FLOATS, b=FLOATS)
def test_float64(a: float, b: float) -> None:
    v, w = X.wide(np.float32([a])), X.wide(np.float32([b]))
    assert v.dtype == np.float64
    for got, want in (
        (X.wide_add(v, w), a + b),
        (X.wide_subtract(v, w), a - b),
        (X.wide_multiply(v, w), a * b),
        (X.wide_divide(v, X.wide_constant(3.0)), a / 3),
    ):
        np.testing.assert_array_equal(got, [want])
        np.testing.assert_array_equal(X.narrow(got), np.array([want]).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("equal", lambda a, b: a == b),
        ("not_equal", lambda a, b: a != b),
        ("greater", lambda a, b: a > b),
        ("greater_equal", lambda a, b: a >= b),
        ("less", lambda a, b: a < b),
        ("less_equal", lambda a, b: a <= b),
    ],
)
@given(a=FLOATS, b=FLOATS)
def test_select(name: str, holds: Any, a: float, b: float) -> None:
    left, right = np.float32([a, b, a]), np.float32([b, b, a])
    got = X.select(name, left, right, np.float32([1, 2, 3]), np.float32([-1, -2, -3]))
    assert got.tolist() == [(i + 1) * (1 if holds(*pair) else -1) for i, pair in enumerate(((a, b), (b, b), (a, a)))]
    scalars = X.select(name, left, np.float32(b), np.float32(7), np.float32(8))
    assert scalars.tolist() == [7 if holds(v, b) else 8 for v in (a, b, a)]
    assert X.select(name, np.float32(a), np.float32(b), np.float32(7), np.float32(8)) == (7 if holds(a, b) else 8)


@given(a=FLOATS)
def test_bounds(a: float) -> None:
    assert same_float(X.at_most(np.float32([a]), 2.5)[0], 2.5 if a > 2.5 else a)
    assert same_float(X.at_least(np.float32([a]), -2.5)[0], -2.5 if a < -2.5 else a)


def same_float(got: Any, want: float) -> bool:
    if math.isnan(want):
        return math.isnan(got)
    return float(got) == want and math.copysign(1, got) == math.copysign(1, want)
