"""Every function is within its bound over all exponents of float32, and docs/accuracy.md names it."""

from __future__ import annotations

from pathlib import Path

import mpmath
import numpy as np
import pytest

from tests.elementary.functions import ACTIVATION_FUNCTIONS, ELEMENTARY_FUNCTIONS, OPERATORS, X, power_errors
from tests.elementary.references import ACTIVATION, ELEMENTARY, Reference, Worst, sweep, ulp, worst

ROOT = Path(__file__).parents[2]
POINTS = [256, pytest.param(1 << 15, marks=pytest.mark.slow)]
FUNCTIONS = [("elementary", name) for name in ELEMENTARY] + [("activation", name) for name in ACTIVATION]


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize(("group", "name"), FUNCTIONS)
def test_functions_are_within_their_bounds(group: str, name: str, points: int) -> None:
    reference = (ELEMENTARY if group == "elementary" else ACTIVATION)[name]
    function = (ELEMENTARY_FUNCTIONS if group == "elementary" else ACTIVATION_FUNCTIONS)[name]
    errors = worst(reference, function, sweep(points, reference.low, reference.high))
    assert errors.count > 100 * points
    assert errors.wrong == 0
    assert errors.ulps <= reference.bound, errors
    assert errors.subnormal <= reference.subnormal, errors


@pytest.mark.parametrize("points", POINTS)
def test_powers_are_within_their_bound(points: int) -> None:
    errors = power_errors(points * 256)
    assert errors.wrong == 0
    assert errors.ulps <= 1.0, errors
    assert errors.subnormal <= 1.0, errors


def test_every_activation_function_has_a_reference() -> None:
    assert set(ACTIVATION) == set(OPERATORS)


def test_the_document_names_every_function() -> None:
    text = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8")
    elementary, _, activation = text.partition("## Functions of the activation unit")
    for name in [*ELEMENTARY, "power"]:
        assert f"\n| `{name}` |" in elementary
    for name in ACTIVATION:
        assert f"\n| `{name}` |" in activation


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("exp", mpmath.exp),
        ("log", mpmath.log),
        ("log1p", mpmath.log1p),
        ("sin", mpmath.sin),
        ("tanh", mpmath.tanh),
        ("arctan", mpmath.atan),
        ("erf", mpmath.erf),
        ("normal_tail", lambda v: mpmath.erfc(v / mpmath.sqrt(2)) / 2),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_references_agree_with_arithmetic_of_many_digits(name: str, exact: object) -> None:
    """Their errors are nothing beside the bounds: less than 2**-20 of an ulp of float32."""
    numbers = np.concatenate([np.float32([0.3, 1.0, 1.5, 3.1415927, 4.5, 12.9]), np.exp2(np.arange(-60, 3, 7))])
    assert callable(exact)
    with mpmath.workdps(60):
        wanted = [exact(mpmath.mpf(float(v))) for v in numbers]
        got = ELEMENTARY[name].exact(numbers.astype(np.float64))
        for value, want in zip(got, wanted, strict=True):
            assert abs(mpmath.mpf(float(value)) - want) <= float(ulp(np.float64(want))) * 2.0**-20


def test_the_measure_sees_errors() -> None:
    exact = Reference(lambda v: v, 0.0)
    seen = Worst()
    numbers = np.float32([1.0, 3.0, 2.0**-140, np.inf, np.nan])
    seen.add(exact, numbers, np.float32([1.0, 3.0, 2.0**-140, np.inf, np.nan]))
    assert (seen.ulps, seen.subnormal, seen.wrong, seen.count) == (0.0, 0.0, 0, 5)
    off = np.nextafter(numbers[:3], np.float32(9))
    seen.add(exact, numbers, np.concatenate([off, np.float32([np.nan, 1.0])]))
    assert (seen.ulps, seen.at, seen.subnormal, seen.wrong) == (1.0, 1.0, 1.0, 2)


def test_no_sine_is_greater_than_one() -> None:
    """Numbers so close to the peaks that the sine rounds to 1 or to its neighbour."""
    peaks = (np.arange(2.0**17 / np.pi) + 0.5) * np.pi
    for distance in np.linspace(-2.5e-4, 2.5e-4, 99):
        numbers = (peaks + distance).astype(np.float32)
        assert np.abs(X.sin(numbers)).max() <= 1.0


def test_sine_beyond_what_it_is_measured_at() -> None:
    numbers = np.random.default_rng(2).uniform(2.0**17, 2.0**21, 20000).astype(np.float32)
    errors = worst(Reference(np.sin, 8.0), X.sin, iter([numbers]))
    assert errors.wrong == 0
    assert errors.ulps <= 8.0
    assert np.isnan(X.sin(np.float32([2.0**21 * 1.0000002, -1e30, 3.4e38, np.inf]))).all()
