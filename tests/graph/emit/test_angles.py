"""sine, cosine, tangent and remainder of floats of every magnitude, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax import lax

from nki.graph.compile import compile_module
from tests.graph import xla

Array = np.ndarray[Any, Any]

_NEAREST = np.float32(16367173.0) * np.float32(2.0**72)
"""Of all float32 the one that is nearest to a multiple of pi / 2: 1.6e-9 away."""


def _angles() -> Array:
    """Random bits of either sign, the numbers nearest to multiples of pi / 2, both sides of 1, and what has no sine."""
    random = np.random.default_rng(4)
    everywhere = np.frombuffer(random.bytes(4 * 8192), np.float32)
    multiples = (random.integers(1, 1 << 24, 4096) * (np.pi / 2)).astype(np.float32)
    ones = np.nextafter(np.float32(1), np.float32([0, 2]))
    special = np.float32([0.0, -0.0, 1, -1, *ones, np.inf, -np.inf, np.nan, _NEAREST, -_NEAREST, np.finfo("f4").max])
    return np.resize(np.concatenate([special, everywhere, multiples]), (128, 96))


def _run(function: Callable[..., Any], *inputs: Array) -> Array:
    (found,) = compile_module(xla.lowered(function, *inputs), target="trn2").run(list(inputs))
    return found


@pytest.mark.parametrize(
    ("function", "reference", "ulps"),
    [(lax.sin, np.sin, 3), (lax.cos, np.cos, 3), (lax.tan, np.tan, 5)],
    ids=["sine", "cosine", "tangent"],
)
def test_any_angle(function: Callable[..., Any], reference: Callable[..., Any], ulps: float) -> None:
    angles = _angles()
    found = _run(function, angles)
    with np.errstate(invalid="ignore"):
        wanted = reference(angles.astype(np.float64))
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    normal = np.abs(wanted) >= np.finfo(np.float32).smallest_normal
    unit = np.spacing(np.abs(wanted[normal]).astype(np.float32))
    assert np.max(np.abs(found[normal] - wanted[normal]) / unit) <= ulps
    assert np.array_equal(np.signbit(found[normal]), np.signbit(wanted[normal]))
    zeros = angles == 0
    assert np.array_equal(found[zeros], wanted[zeros].astype(np.float32))
    assert np.array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


def test_sine_and_cosine_take_turns_off_once() -> None:
    def count(function: Callable[..., Any]) -> int:
        program = compile_module(xla.lowered(function, np.zeros((2, 8), np.float32)), target="trn2").programs[0]
        return sum(1 for _ in program.body.walk())

    assert count(lambda x: (lax.sin(x), lax.cos(x))) < 0.7 * (count(lax.sin) + count(lax.cos))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bfloat16", "float16"])
def test_angles_of_two_bytes(dtype: Any) -> None:
    """Every number of these types, rounded as the exact sine and cosine are, or to the other neighbour."""
    angles = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(256, 256)
    for function, reference in ((lax.sin, np.sin), (lax.cos, np.cos)):
        found = _run(function, angles).astype(np.float64)
        with np.errstate(invalid="ignore"):
            wanted = reference(angles.astype(np.float64))
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
        some = np.isfinite(wanted)
        unit = np.abs(wanted[some]) * float(ml_dtypes.finfo(dtype).eps) + float(ml_dtypes.finfo(dtype).tiny)
        assert np.max(np.abs(found[some] - wanted[some]) / unit) <= 1.0


@np.errstate(invalid="ignore")
def _pairs(dtype: Any) -> tuple[Array, Array]:
    """Random bits, so that quotients have up to 250 bits; equal numbers, small quotients, and what has no remainder."""
    random = np.random.default_rng(5)
    a, b = (np.frombuffer(random.bytes(np.dtype(dtype).itemsize << 13), dtype).reshape(128, 64) for _ in "ab")
    a, b = (np.where(np.isnan(x), dtype(np.nan), x) for x in (a, b))
    b[0], b[1], b[2], b[3], a[4], a[5] = a[0], (a[1].astype(np.float32) / 3).astype(dtype), 0, np.inf, np.inf, -0.0
    least = float(ml_dtypes.finfo(dtype).smallest_normal)
    normal = [~(np.abs(x.astype(np.float64)) < least) | (x == 0) for x in (a, b)]
    return np.where(normal[0], a, dtype(1)), np.where(normal[1], b, dtype(3))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_remainder_of_any_quotient(dtype: Any) -> None:
    a, b = _pairs(dtype)
    found = _run(lax.rem, a, b).astype(np.float64)
    with np.errstate(invalid="ignore"):
        wanted = np.fmod(a.astype(np.float64), b.astype(np.float64))
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    kept = np.isfinite(wanted) & ((np.abs(wanted) >= float(ml_dtypes.finfo(dtype).smallest_normal)) | (wanted == 0))
    assert np.array_equal(found[kept], wanted[kept])
    assert np.array_equal(np.signbit(found[kept]), np.signbit(wanted[kept]))
