"""erf and the normal tail: accuracy on every float32, special values, coefficients as the fit script makes them."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

from nki.core import erf_coefficients
from nki.core.special import erf
from nki.isa.functions import normal_tail
from nki.sim.numpy_arrays import NumpyArrays
from tests.isa.tiles import ulps

ROOT = Path(__file__).parent.parent.parent
ERF_ULPS = 1.27
TAIL_ULPS = 7.0


def tail(t: Any) -> Any:
    x: Any = NumpyArrays()
    return normal_tail(x, t)


def floats(low: float, high: float, step: int) -> Iterator[np.ndarray]:
    """Every step-th float32 from `low` to `high`, both positive, in pieces."""
    first, last = (int(np.float32(v).view(np.uint32)) for v in (low, high))
    piece = step << 18
    for start in range(first, last, piece):
        yield np.arange(start, min(start + piece, last), step, dtype=np.uint32).view(np.float32)


def largest(function: Callable[[Any], Any], exact: Callable[[Any], Any], numbers: Iterator[np.ndarray]) -> float:
    with np.errstate(all="ignore"):
        return max(float(ulps(function(n), exact(n.astype(np.float64))).max()) for n in numbers)


@pytest.mark.parametrize("step", [1009, pytest.param(1, marks=pytest.mark.slow)])
def test_erf_is_within_its_bound(step: int) -> None:
    assert largest(erf, scipy.special.erf, floats(2.0**-126, 6.0, step)) <= ERF_ULPS


@pytest.mark.parametrize("step", [1009, pytest.param(1, marks=pytest.mark.slow)])
def test_normal_tail_is_within_its_bound(step: int) -> None:
    # From 12.9 on the result is below the normal numbers, whose smallest one the ulps are counted of.
    assert largest(tail, lambda t: scipy.special.ndtr(-t), floats(2.0**-20, 15.0, step)) <= TAIL_ULPS


def test_two_references_agree() -> None:
    """scipy and the C library compute in float64 by different means, and are far more accurate than what they judge."""
    for value in (1e-30, 0.3, 0.99999994, 1.0, 1.7, 3.9, 8.0, 12.0):
        assert scipy.special.erf(value) == pytest.approx(math.erf(value), rel=1e-14)
        assert scipy.special.ndtr(-value) == pytest.approx(math.erfc(value / math.sqrt(2)) / 2, rel=1e-13)


def test_special_values() -> None:
    numbers = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.92, 1e30], np.float32)
    wanted = np.array([0.0, -0.0, 1.0, -1.0, np.nan, 1.4e-45, -1.128368e-40, 1.0, 1.0], np.float32)
    got = erf(numbers)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
    np.testing.assert_array_equal(tail(np.array([0.0, np.inf, np.nan, 200.0], np.float32)), [0.5, 0.0, np.nan, 0.0])


def test_erf_is_odd_and_monotonic_at_the_seam() -> None:
    numbers = np.concatenate(list(floats(0.999, 1.001, 1)))
    np.testing.assert_array_equal(erf(-numbers), -erf(numbers))
    # one ulp of erf spans more than two numbers here: it may waver within its bound but not fall behind
    assert (np.diff(erf(numbers[::8])) >= 0).all()


def test_any_shape_and_dtype() -> None:
    assert erf(0.5).shape == () and erf(0.5).dtype == np.float32
    assert erf(np.ones((2, 0, 3), np.float16)).shape == (2, 0, 3)
    strided = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)[::2, ::3]
    np.testing.assert_array_equal(erf(strided), erf(strided.copy()))


def test_the_fit_script_reproduces_the_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("fit_erf", ROOT / "scripts" / "fit_erf.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fit_erf", module)  # where its dataclass looks for its annotations
    spec.loader.exec_module(module)
    assert module.text() == Path(erf_coefficients.__file__).read_text(encoding="utf-8")


def test_coefficients_are_float32() -> None:
    for name in ("NEAR", "FAR", "TAIL"):
        for value in getattr(erf_coefficients, name):
            assert float(np.float32(value)) == value
