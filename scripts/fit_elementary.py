"""Fits the polynomials of the elementary functions, and writes src/nki/elementary/coefficients.py.

usage: python scripts/fit_elementary.py

The same bytes every time: a weighted least-squares fit in Chebyshev nodes, in float64 with the functions of the C
library, whose coefficients are rounded to float32 one by one, each time with a new fit of those that remain. The error
of the fit is measured with the rounded coefficients and written next to them. The error of the float32 functions that
use them is measured by benchmarks/accuracy.py and bounded by tests/elementary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Function = Callable[[Float64], Float64]

OUTPUT = Path(__file__).parent.parent / "src" / "nki" / "elementary" / "coefficients.py"
_GRID = 4000
_SMALL = 0.03
_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class Fit:
    """One polynomial.

    Attributes:
        name: of the constant that holds its coefficients, constant term first.
        comment: what it approximates.
        function: of the polynomial's own variable.
        weight: factor of the absolute error in the polynomial that gives the relative error of the final result.
        low, high: interval of the polynomial's own variable.
        degree: of the polynomial.
    """

    name: str
    comment: str
    function: Function
    weight: Function
    low: float
    high: float
    degree: int


def _with_series(closed: Function, series: Callable[[int], float], terms: int = 12) -> Function:
    """`closed`, but its power series, whose coefficients are ``series(0), series(1), ...``, where that cancels."""
    coefficients = [series(n) for n in range(terms)]

    def function(v: Float64) -> Float64:
        small = np.abs(v) < _SMALL
        return np.where(small, np.polynomial.polynomial.polyval(v, coefficients), closed(np.where(small, 0.5, v)))

    return function


_exp_rest = _with_series(lambda r: (np.expm1(r) - r) / (r * r), lambda n: 1 / math.factorial(n + 2))
_log_rest = _with_series(lambda f: (np.log1p(f) - f + f * f / 2) / f**3, lambda n: (-1) ** n / (n + 3))
_artanh_rest = _with_series(
    lambda z: (2 * np.arctanh(np.sqrt(z) / 2) / np.sqrt(z) - 1) / z, lambda n: 0.25 ** (n + 1) / (2 * n + 3)
)
_sin_rest = _with_series(
    lambda s: (np.sin(np.sqrt(s)) / np.sqrt(s) - 1) / s, lambda n: (-1) ** (n + 1) / math.factorial(2 * n + 3)
)
_arctan_rest = _with_series(
    lambda s: (np.arctan(np.sqrt(s)) / np.sqrt(s) - 1) / s, lambda n: (-1) ** (n + 1) / (2 * n + 3)
)
_erf_near = _with_series(
    lambda s: _erf(np.sqrt(s)) / np.sqrt(s) - 1,
    lambda n: 2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) - (n == 0),
)


def _tail_of(q: Float64) -> Float64:
    """``(t + 1.5) * exp(t * t / 2) * Phi(-t)`` with ``q = 1 - 3 / (t + 1.5)``."""
    t = 3 / (1 - q) - 1.5
    return (t + 1.5) * 0.5 * _erfc(t / math.sqrt(2)) * np.exp(t * t / 2)


FITS = (
    Fit(
        "EXP",
        "exp(r) = 1 + r + r * r * p(r) for |r| <= log(2) / 2, and what rounding adds",
        _exp_rest,
        lambda r: r * r / np.exp(r),
        -0.34662,
        0.34662,
        4,
    ),
    Fit(
        "LOG",
        "log(1 + f) = f - f * f / 2 + f * f * f * p(f) for |f| <= 1 / 3",
        _log_rest,
        lambda f: np.where(np.abs(f) < 1e-9, 0.0, f**3 / np.log1p(np.where(f == 0, 1e-9, f))),
        -1 / 3,
        1 / 3,
        7,
    ),
    Fit(
        "LOG_UNIT",
        "log((2 + s) / (2 - s)) = s + s * s * s * p(s * s) for 0 <= s <= 2 / 3",
        _artanh_rest,
        lambda z: z / (1 + z * _artanh_rest(z)),
        0.0,
        4 / 9,
        3,
    ),
    Fit(
        "SIN",
        "sin(r) = r + r * r * r * p(r * r) for |r| <= pi / 2, and what rounding adds",
        _sin_rest,
        lambda s: s / (1 + s * _sin_rest(s)),
        0.0,
        2.4676,
        3,
    ),
    Fit(
        "ARCTAN",
        "arctan(r) = r + r * r * r * p(r * r) for |r| <= 1",
        _arctan_rest,
        lambda s: s / (1 + s * _arctan_rest(s)),
        0.0,
        1.0,
        7,
    ),
    Fit(
        "ERF_NEAR",
        "erf(x) = x + x * p(x * x) for |x| < 1",
        _erf_near,
        lambda s: 1 / (_erf_near(s) + 1),
        0.0,
        1.0,
        6,
    ),
    Fit(
        "ERF_FAR",
        "erf(x) = 1 - exp(-p(x - 1)) for 1 <= x < 4",
        lambda s: -np.log(_erfc(s + 1)),
        lambda s: _erfc(s + 1) / _erf(s + 1),
        0.0,
        3.0,
        6,
    ),
    Fit(
        "TAIL",
        "Phi(-t) = exp(-t * t / 2) * p(1 - 3 / (t + 1.5)) / (t + 1.5) for 0 <= t < 15",
        _tail_of,
        lambda q: 1 / _tail_of(q),
        -1.0,
        9 / 11,
        11,
    ),
)


def rounded(fit: Fit) -> Float32:
    """The coefficients as float32: the constant term first, then the next one in a fit that knows it, and so on."""
    fixed: list[float] = []
    for _ in range(fit.degree + 1):
        fixed.append(float(np.float32(_fitted(fit, fixed)[0])))
    return np.asarray(fixed, np.float32)


def _fitted(fit: Fit, fixed: list[float]) -> Float64:
    """The remaining coefficients, with the first ones given: least squares of the weighted error in Chebyshev nodes."""
    grid = _chebyshev(fit, _GRID)
    powers = grid[:, None] ** np.arange(fit.degree + 1)
    open_error = fit.function(grid) - powers[:, : len(fixed)] @ np.asarray(fixed)
    weight = fit.weight(grid)
    solution = np.linalg.lstsq(powers[:, len(fixed) :] * weight[:, None], open_error * weight, rcond=None)
    return np.asarray(solution[0], np.float64)


def _chebyshev(fit: Fit, count: int) -> Float64:
    nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)[::-1]
    return (fit.low + fit.high) / 2 + (fit.high - fit.low) / 2 * nodes


def fitted_error(fit: Fit, coefficients: Float32) -> float:
    """Largest weighted error of the rounded coefficients on a grid, evaluated in float64."""
    grid = _chebyshev(fit, 10 * _GRID)
    values = np.polynomial.polynomial.polyval(grid, coefficients.astype(np.float64))
    return float(np.max(np.abs(values - fit.function(grid)) * fit.weight(grid)))


def text() -> str:
    """The module with the coefficients."""
    lines = [
        '"""Coefficients of the elementary functions; made by scripts/fit_elementary.py, not to be edited."""',
        "",
        "from __future__ import annotations",
    ]
    for fit in FITS:
        coefficients = rounded(fit)
        bits = math.log2(fitted_error(fit, coefficients))
        lines += [
            "",
            f"# {fit.comment}.",
            f"# Error of the fit, before float32 arithmetic: 2**{bits:.1f} of the result.",
        ]
        lines += [f"{fit.name} = (", *[f"    {float(c)!r}," for c in coefficients], ")"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the coefficients."""
    OUTPUT.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
