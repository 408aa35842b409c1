"""Special values, symmetries and seams of the elementary functions, bit by bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki import elementary
from nki.isa import functions
from nki.sim.numpy_arrays import NumpyArrays
from tests.elementary.functions import ACTIVATION_FUNCTIONS, ELEMENTARY_FUNCTIONS, OPERATORS, SLOPE, X
from tests.together import together

INF, NAN = math.inf, math.nan
TINY, SMALL = 2.0**-149, 2.0**-126
FLOATS = st.floats(width=32)

SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(INF, INF), (-INF, 0.0), (0.0, 1.0), (-0.0, 1.0), (88.72284, INF), (-103.98, 0.0), (-103.97, TINY)],
    "log": [(INF, INF), (-INF, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (-TINY, NAN)],
    "log1p": [(INF, INF), (-1.0, -INF), (-1.0000001, NAN), (-INF, NAN), (0.0, 0.0), (-0.0, -0.0), (-TINY, -TINY)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (TINY, TINY), (-SMALL, -SMALL)],
    "tanh": [(INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (TINY, TINY), (-SMALL, -SMALL), (9.1, 1.0)],
    "arctan": [(INF, math.pi / 2), (-INF, -math.pi / 2), (0.0, 0.0), (-0.0, -0.0), (TINY, TINY), (1.0, math.pi / 4)],
    "erf": [(INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (TINY, TINY), (1e30, 1.0), (-3.95, -1.0)],
    "decay": [(INF, 0.0), (0.0, 1.0), (104.0, 0.0), (3.4e38, 0.0)],
    "log1p_unit": [(0.0, 0.0), (TINY, TINY), (SMALL, SMALL)],
    "normal_tail": [(0.0, 0.5), (INF, 0.0), (200.0, 0.0)],
}


def same(got: Any, want: Any) -> bool:
    """Equal values, equal signs of zero, NaN at the same places."""
    got, want = np.asarray(got, np.float32), np.asarray(want, np.float32)
    signs = (np.signbit(got) == np.signbit(want)) | np.isnan(want)
    return got.shape == want.shape and bool((((got == want) | (np.isnan(got) & np.isnan(want))) & signs).all())


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str) -> None:
    arguments, wanted = (np.array(column, np.float32) for column in zip(*SPECIAL[name], strict=True))
    got = ELEMENTARY_FUNCTIONS[name](arguments)
    assert got.dtype == np.float32
    assert same(got, wanted), got


@together("name", SPECIAL)
@together("bits", [0x7FC00000, 0x7FFFFFFF, 0x7F800001, 0xFFC00123, 0xFFFFFFFF])
def test_nan_stays_nan(name: str, bits: int) -> None:
    assert np.isnan(ELEMENTARY_FUNCTIONS[name](np.array([bits, bits], np.uint32).view(np.float32))).all()


@pytest.mark.parametrize("name", ["sin", "tanh", "arctan", "erf"])
@given(a=FLOATS)
def test_odd_functions(name: str, a: float) -> None:
    positive, negative = (ELEMENTARY_FUNCTIONS[name](np.float32([v])) for v in (a, -a))
    assert same(-negative, positive)


@pytest.mark.parametrize("name", SPECIAL)
def test_results_depend_neither_on_shape_nor_on_pieces(name: str) -> None:
    """A large array is evaluated piece by piece, a column or a scalar at once."""
    flat = np.random.default_rng(4).uniform(0.0, 1.0, 128 * 300).astype(np.float32)
    function = ELEMENTARY_FUNCTIONS[name]
    wanted = np.array([function(v) for v in flat[::400]], np.float32)
    assert function(flat)[::400].tobytes() == wanted.tobytes()
    tile = flat.reshape(128, 300)
    assert function(tile).tobytes() == function(flat).tobytes()
    assert function(tile.T).tobytes() == np.ascontiguousarray(function(tile).T).tobytes()
    assert function(tile[:, :1]).shape == (128, 1)
    assert function(tile[:, 3:4]).tobytes() == function(tile)[:, 3:4].tobytes()
    assert function(np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_seams_are_monotonic_within_the_bound() -> None:
    """Across the joints of two formulas the results do not fall behind by more than the errors allow."""
    for name, seam in (
        ("erf", 1.0),
        ("arctan", 1.0),
        ("log", 4 / 3),
        ("log", 2 / 3),
        ("tanh", 0.1733),
        ("exp", 0.3466),
    ):
        bits = int(np.float32(seam).view(np.int32))
        numbers = np.arange(bits - 4096, bits + 4096, dtype=np.int32).view(np.float32)
        results = ELEMENTARY_FUNCTIONS[name](numbers)
        assert results[-1] > results[0], name
        assert (np.diff(results) >= -2.1 * np.spacing(np.abs(results[1:]))).all(), name


# ---- power

BASES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, TINY, -TINY, 3.4e38, -3.4e38, INF, -INF, NAN]
POWERS = [*BASES, 2.5, -2.5, -3.0, 16777215.0, -16777215.0, 16777216.0, 1e30, -1e30]


def power_of_c(a: float, b: float) -> float:
    """The C library's, whose errors Python raises."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return math.copysign(INF, a) if b % 2 == 1 else INF
    except ValueError:  # a pole, or a negative base to a power that is not whole
        return NAN if a else math.copysign(INF, a) if b % 2 == 1 else INF


@pytest.mark.parametrize("base", BASES)
def test_powers_have_the_special_cases_of_c99(base: float) -> None:
    for exponent in POWERS:
        a, b = np.float32(base), np.float32(exponent)
        got, want = X.power(a, b), np.float32(power_of_c(float(a), float(b)))
        assert same(got, want) or abs(got - want) <= np.spacing(np.abs(want)), (a, b, got, want)
        assert np.isnan(want) or np.signbit(got) == np.signbit(want), (a, b, got, want)


def test_powers_broadcast() -> None:
    a = np.random.default_rng(0).uniform(0.1, 4.0, (128, 200)).astype(np.float32)
    column = np.linspace(-3, 3, 128, dtype=np.float32)[:, None]
    got = X.power(a, column)
    assert got.shape == a.shape
    assert got.tobytes() == X.power(a, np.broadcast_to(column, a.shape).copy()).tobytes()
    assert got[7, 9] == X.power(a[7, 9], column[7, 0])
    whole = np.arange(-149, 128, dtype=np.float32)
    np.testing.assert_array_equal(X.power(np.float32(2), whole), np.exp2(whole.astype(np.float64)))


# ---- exact functions


@given(a=FLOATS, n=st.integers(-400, 400))
def test_ldexp_rounds_once(a: float, n: int) -> None:
    got = elementary.ldexp(X, np.float32(a), np.float32(n))
    exact = np.float64(a) * 2.0**n  # float32 times 2**400 is in the range of float64
    assert same(got, np.float32(exact))


@given(a=FLOATS)
def test_exponent_is_that_of_frexp(a: float) -> None:
    got = elementary.exponent(X, np.float32(a))
    if not math.isfinite(a):
        assert got == 128
    else:
        assert got == (math.frexp(a)[1] - 1 if abs(a) >= SMALL else -127)


class Choosing(NumpyArrays):
    """Refuses operations on two NaNs that differ."""

    def _seen(self, *operands: Any) -> None:
        found = [np.asarray(v, np.float32).view(np.uint32) | 1 << 22 for v in operands if np.isnan(v).any()]
        assert all(bits.tolist() == found[0].tolist() for bits in found)

    def add(self, a: Any, b: Any) -> Any:
        self._seen(a, b)
        return super().add(a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        self._seen(a, b)
        return super().subtract(a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        self._seen(a, b)
        return super().multiply(a, b)

    def divide(self, a: Any, b: Any) -> Any:
        self._seen(a, b)
        return super().divide(a, b)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        self._seen(a, b, c)
        return super().multiply_add(a, b, c)

    def scaled(self, a: Any, n: Any) -> Any:
        self._seen(a, n)
        return super().scaled(a, n)


@together("name", ACTIVATION_FUNCTIONS)
@together("bits", [0x7FC01234, 0xFFC01234, 0x7FC00001])
def test_no_operation_chooses_between_two_nans(name: str, bits: int) -> None:
    """Which of two NaNs an operation passes on is the machine's choice: here both must be the same one."""
    result = functions.apply(Choosing(), OPERATORS[name], np.array([bits], np.uint32).view(np.float32), SLOPE)
    assert np.isnan(result).all()
