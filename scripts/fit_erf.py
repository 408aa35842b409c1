"""Fits the polynomials of the error function and of the normal tail, and writes src/nki/core/erf_coefficients.py.

usage: python scripts/fit_erf.py

The same bytes every time: a weighted least-squares fit in Chebyshev nodes, in float64 with the error functions of the C
library, whose coefficients are rounded to float32 one by one, each time with a new fit of those that remain. The error
of the fit is measured with the rounded coefficients and written next to them. The error of the float32 functions that
use them is proved by trying: tests/core/test_special.py does so for every float32 (marked slow) and for a part of them.
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

OUTPUT = Path(__file__).parent.parent / "src" / "nki" / "core" / "erf_coefficients.py"
_GRID = 4000
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


def _near(s: Float64) -> Float64:
    """``erf(x) / x - 1`` with ``s = x * x``, by its series where the quotient would be 0 / 0."""
    x = np.sqrt(s)
    return np.where(s < 1e-8, 2 / math.sqrt(math.pi) - 1 - x * x * 2 / (3 * math.sqrt(math.pi)), _erf(x) / x - 1)


def _tail_of(q: Float64) -> Float64:
    """``(1 + t) * exp(t * t / 2) * Phi(-t)`` with ``q = (t - 4) / (t + 4)``."""
    t = 4 * (1 + q) / (1 - q)
    return (1 + t) * 0.5 * _erfc(t / math.sqrt(2)) * np.exp(t * t / 2)


FITS = (
    Fit(
        "NEAR",
        "erf(x) = x + x * p(x * x) for |x| < FAR_START",
        _near,
        lambda s: 1 / (_near(s) + 1),
        1e-12,
        1.0,
        6,
    ),
    Fit(
        "FAR",
        "erf(x) = 1 - exp(-p(x - FAR_START)) for FAR_START <= x < FAR_LIMIT",
        lambda s: -np.log(_erfc(s + 1)),
        lambda s: _erfc(s + 1) / _erf(s + 1),
        0.0,
        3.0,
        6,
    ),
    Fit(
        "TAIL",
        "Phi(-t) = exp(-t * t / 2) * p(q) / (1 + t) with q = (t - 4) / (t + 4), for 0 <= t < 15",
        _tail_of,
        lambda q: 1 / _tail_of(q),
        -1.0,
        11 / 19,
        10,
    ),
)
CONSTANTS = {"FAR_START": 1.0, "FAR_LIMIT": 4.0}


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
        '"""Coefficients of the error function and the normal tail; made by scripts/fit_erf.py, not to be edited."""',
        "",
        "from __future__ import annotations",
        "",
        *[f"{name} = {value}" for name, value in CONSTANTS.items()],
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
