"""floor, ceil, trunc, mod and fmod are NumPy's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, same, words

ROUNDINGS = ("floor", "ceil", "trunc")
REMAINDERS = ("mod", "fmod")
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        0.99999994,
        1e-45,
        2**-126,
        1 / 3,
        4194304.5,
        8388607.5,
        2**23 + 1,
        16777217.0,
        2**31,
        2**31 - 128,
        3e38,
        np.inf,
        np.nan,
    ],
    np.float32,
)
BOTH_SIGNS = np.concatenate([SPECIAL, -SPECIAL]).reshape(1, -1)
SMALL = np.array([0.0, 1.0, 3.0, 0.5, 7.5, 1e-3, 2**20, np.inf, np.nan, 0.1, 1e-30, 3e38], np.float32)

floats = st.floats(width=32, allow_nan=True, allow_infinity=True)
normals = st.floats(min_value=2.0**-100, max_value=2.0**100, width=32)


def numpy_of(name: str) -> Any:
    """NumPy's function, without its warnings."""
    return np.errstate(all="ignore")(getattr(np, name))


def equal_bits(got: np.ndarray, wanted: np.ndarray) -> None:
    """NaN counts as NaN; all other numbers have the same bits."""
    number = ~(np.isnan(got) & np.isnan(wanted))
    np.testing.assert_array_equal(got.view(np.uint32)[number], wanted.view(np.uint32)[number])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ROUNDINGS)
def test_special_numbers(name: str, target: str) -> None:
    equal_bits(on_tiles(getattr(nl, name), BOTH_SIGNS, target=target), numpy_of(name)(BOTH_SIGNS))


@pytest.mark.parametrize("name", ROUNDINGS)
@given(values=st.lists(floats, min_size=64, max_size=64))
def test_any_number(name: str, values: list[float]) -> None:
    x = np.array([values], np.float32)
    equal_bits(on_tiles(getattr(nl, name), x), numpy_of(name)(x))


@pytest.mark.parametrize("name", ROUNDINGS)
def test_any_exponent(name: str) -> None:
    x = words((128, 512), np.uint32).view(np.float32)
    equal_bits(on_tiles(getattr(nl, name), x), numpy_of(name)(x))


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_narrow_floats(name: str, dtype: Any) -> None:
    x = normal((32, 32), dtype, 40)
    got = on_tiles(getattr(nl, name), x, psum=True)
    assert got.dtype == np.dtype(dtype)
    same(got, numpy_of(name)(x.astype(np.float32)))


@pytest.mark.parametrize("name", ROUNDINGS)
def test_integers_stay(name: str) -> None:
    x = words((16, 16), np.int32)
    same(on_tiles(getattr(nl, name), x), x)


def test_result_in_an_integer_dtype() -> None:
    x = normal((16, 16), scale=30)
    same(on_tiles(lambda t: nl.floor(t, dtype=nl.int32), x), np.floor(x).astype(np.int32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", REMAINDERS)
def test_remainders_of_special_numbers(name: str, target: str) -> None:
    values = np.concatenate([SMALL, -SMALL])
    x, y = (grid.reshape(16, -1).copy() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        meaningful = ~(np.abs(x / y) >= 2**21) | (y == 0) | np.isinf(x)
        wanted = numpy_of(name)(x, y)
    got = on_tiles(getattr(nl, name), x, y, target=target)
    equal_bits(got[meaningful], wanted[meaningful])


@pytest.mark.parametrize("name", REMAINDERS)
@given(pairs=st.lists(st.tuples(normals, normals, st.booleans(), st.booleans()), min_size=64, max_size=64))
def test_remainders_of_any_numbers(name: str, pairs: list[tuple[float, float, bool, bool]]) -> None:
    x = np.array([[-p[0] if p[2] else p[0] for p in pairs]], np.float32)
    y = np.array([[-p[1] if p[3] else p[1] for p in pairs]], np.float32)
    x = np.where(np.abs(x.astype(np.float64) / y) < 2**21, x, np.fmod(x, y * np.float32(2**16)))
    equal_bits(on_tiles(getattr(nl, name), x, y), numpy_of(name)(x, y))


@pytest.mark.parametrize("name", REMAINDERS)
def test_remainders_of_large_quotients(name: str) -> None:
    """Quotients at whole numbers and next to them, up to the documented 2**21."""
    random = np.random.default_rng(3)
    y = random.uniform(0.5, 2, (128, 256)).astype(np.float32)
    x = (y * np.exp2(random.uniform(0, 20.9, y.shape)).astype(np.int64)).astype(np.float32)
    x = (x.view(np.int32) + random.integers(-2, 3, x.shape)).astype(np.int32).view(np.float32)
    x[::2] *= -1
    equal_bits(on_tiles(getattr(nl, name), x, y), numpy_of(name)(x, y))


@pytest.mark.parametrize("name", REMAINDERS)
def test_remainders_with_numbers_and_columns(name: str) -> None:
    x, column = normal((32, 20), scale=20), normal((32, 1), seed=1)
    equal_bits(on_tiles(lambda t: getattr(nl, name)(t, -2.5), x), numpy_of(name)(x, np.float32(-2.5)))
    equal_bits(on_tiles(lambda t: getattr(nl, name)(7, t), x), numpy_of(name)(np.float32(7), x))
    equal_bits(on_tiles(getattr(nl, name), x, column), numpy_of(name)(x, column))


def test_remainders_of_integers() -> None:
    x, y = normal((16, 16), np.int32, 1000), normal((16, 16), np.int32, 9, seed=1)
    y[y == 0] = 4
    same(on_tiles(nl.mod, x, y), np.mod(x, y))
    same(on_tiles(nl.fmod, x, y), np.fmod(x, y))
