"""sin, cos and tan of arguments far outside the range of the activation unit."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import nki.language as nl
from nki.language.trigonometry import PI
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, wide
from tests.together import together

FUNCTIONS: dict[str, Any] = {"sin": np.sin, "cos": np.cos}
PI_DIGITS = Fraction("3.14159265358979323846264338327950288419716939937510")


@together("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
@together("scale", [1.0, 30.0, 1e3, 5e4])
def test_within_a_millionth(name: str, scale: float, target: str) -> None:
    x = np.clip(normal((64, 64), scale=scale), -2e5, 2e5)
    got = on_tiles(getattr(nl, name), x, target=target)
    np.testing.assert_allclose(got, FUNCTIONS[name](wide(x)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_near_multiples_of_half_pi(name: str) -> None:
    x = (np.arange(-2000, 2000) * (math.pi / 2)).astype(np.float32).reshape(40, 100)
    np.testing.assert_allclose(on_tiles(getattr(nl, name), x), FUNCTIONS[name](wide(x)), rtol=0, atol=1e-6)


def test_tan() -> None:
    x = normal((64, 64), scale=100)
    exact = np.tan(wide(x))
    # The error of the angle, 5e-7, times the slope of the tangent.
    np.testing.assert_array_less(np.abs(on_tiles(nl.tan, x) - exact), 1e-6 * (1 + exact**2) + 1e-9)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_infinities_and_nan(name: str) -> None:
    got = on_tiles(getattr(nl, name), np.array([[np.inf, -np.inf, np.nan, 0.0]], np.float32))
    np.testing.assert_array_equal(got, [[np.nan, np.nan, np.nan, 1.0 if name == "cos" else 0.0]])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_huge_arguments_stay_in_range(name: str) -> None:
    x = np.geomspace(1e6, 3e38, 512, dtype=np.float32).reshape(4, 128)
    assert np.abs(on_tiles(getattr(nl, name), x)).max() <= 1


def test_other_dtypes_and_psum() -> None:
    x = normal((32, 32), BFLOAT16, 20)
    got = on_tiles(nl.sin, x, psum=True)
    assert got.dtype == BFLOAT16
    np.testing.assert_allclose(wide(got), np.sin(wide(x)), rtol=2**-8, atol=1e-6)
    whole = normal((16, 16), np.int32, 50)
    got = on_tiles(lambda t: nl.cos(t, dtype=nl.float32), whole)
    np.testing.assert_allclose(got, np.cos(wide(whole)), rtol=0, atol=1e-6)


def test_pieces_add_up_to_pi() -> None:
    assert abs(sum(map(Fraction, PI)) - PI_DIGITS) < Fraction(1, 2**52)


def test_first_pieces_have_eight_bits() -> None:
    for piece in PI[:3]:
        assert math.frexp(piece)[0] * 2**8 % 1 == 0
