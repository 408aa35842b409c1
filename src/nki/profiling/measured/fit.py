"""Coefficients of the timing model that fit what was measured, and which of them the measurement determines.

Least squares on observations, each with the error that its rounding and the noise of a device suggest. What
instructions cost is asked anew for every coefficient, so that whatever the cost formulas do with it is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nki.core.least_squares import NOTHING, Coefficient, LeastSquares
from nki.profiling.measured.capture import Capture
from nki.profiling.measured.matching import Matched
from nki.profiling.measured.observations import Observation, Prices, Timed, Trips, observe, timed
from nki.spec.program import Program
from nki.target.model import Target

SELECTIONS = 3
"""How often observations are chosen anew."""
ROUNDING_NS, NOISE = 1.0, 0.02
"""Error of an observation: ns, and part of it."""
MODEL = 0.002
"""Part of a time by which even the best coefficients may miss it."""
SURE = 0.02
"""Relative standard error up to which a coefficient counts as determined."""
_SETTLED = 5e-3


class Fit(NamedTuple):
    """All coefficients, the observations, and their mean error in parts before and after."""

    coefficients: list[Coefficient]
    observations: list[Observation]
    before: float
    after: float

    def to_json(self) -> dict[str, Any]:
        """For programs; an error that nothing tells is null."""
        return {
            "observations": len(self.observations),
            "mean_error_before": self.before,
            "mean_error_after": self.after,
            "coefficients": [
                {**each._asdict(), "error": each.error if math.isfinite(each.error) else None}
                for each in self.coefficients
            ],
        }


def fit(matched: Matched, capture: Capture, programs: Sequence[Program], target: Target, trips: Trips | None) -> Fit:
    """Fit the coefficients of a target to matched instructions.

    Args:
        matched: instructions, see `match`.
        capture: that they were matched with.
        programs: the compiled kernel, that was matched.
        target: whose coefficients are the first guess, and stay where nothing is known.
        trips: of loops, as the profile had them.
    """
    return _Fitting(matched, capture, programs, target, trips).run()


class _Fitting:
    def __init__(
        self, matched: Matched, capture: Capture, programs: Sequence[Program], target: Target, trips: Trips | None
    ) -> None:
        self.matched, self.capture = matched, capture
        self.programs, self.target, self.trips = programs, target, trips
        self.names = sorted(target.timing)
        self.before = np.array([target.timing[name] for name in self.names])
        self._last: Timed | None = None
        self._observe(self.before)

    def run(self) -> Fit:
        """Fit all that observations depend on, and keep what they determine whatever the others are."""
        predicted = self._predicted(self.before)
        slopes = self.problem.slopes(self.before, predicted, np.ones(len(self.names), bool))
        touched = np.sum(np.abs(slopes) > NOTHING, axis=0)
        values, predicted, slopes = self._settled(touched > 0)
        errors = self.problem.errors(slopes, self.problem.residuals(predicted), touched > 0)
        kept = errors <= SURE
        values = np.where(kept, values, self.before)
        return Fit(
            [self._coefficient(at, values, errors, touched) for at in range(len(self.names))],
            self.seen,
            self.problem.mean_error(self.before),
            self.problem.mean_error(values),
        )

    def _observe(self, values: np.ndarray) -> None:
        """Observe what waits for nothing else with these coefficients; with others it may be something else."""
        self._last = timed(self.programs, self._target(values), self.trips, self._last)
        self.seen, self.examples = observe(self.matched, self.capture, self._last)
        measured = np.array([each.measured for each in self.seen])
        noise = np.hypot(ROUNDING_NS, NOISE * np.array([each.long for each in self.seen]))
        sigma = noise / np.sqrt([each.times for each in self.seen]) + MODEL * measured
        self.problem = LeastSquares(self.before, measured, sigma, self._predicted)

    def _settled(self, free: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best coefficients for the observations that they lead to."""
        values, predicted, slopes = self.problem.best(self.before, free)
        for _ in range(SELECTIONS):
            self._observe(values)
            last = values
            values, predicted, slopes = self.problem.best(values, free)
            if np.max(np.abs(np.log(values / last))) < _SETTLED:
                break
        return values, predicted, slopes

    def _coefficient(self, at: int, values: np.ndarray, errors: np.ndarray, touched: np.ndarray) -> Coefficient:
        why, error = "", float(errors[at])
        if not touched[at]:
            why = "no matched instruction depends on it"
        elif not np.isfinite(error):
            why = f"{_counted(touched[at])} only together with others"
        elif error > SURE:
            why = f"{_counted(touched[at])} to {error:.1%} only"
        before = float(self.before[at])
        return Coefficient(self.names[at], before, float(values[at]), error, int(touched[at]), error <= SURE, why)

    def _target(self, values: np.ndarray) -> Target:
        timing: Mapping[str, float] = dict(zip(self.names, map(float, values), strict=True))
        return replace(self.target, timing=MappingProxyType(timing))

    def _predicted(self, values: np.ndarray) -> np.ndarray:
        prices = Prices(self._target(values), self.examples)
        return np.array([sum(map(prices.of, each.terms)) for each in self.seen])


def _counted(count: int) -> str:
    return f"{count} kind of observation tells it" if count == 1 else f"{count} kinds of observations tell it"
