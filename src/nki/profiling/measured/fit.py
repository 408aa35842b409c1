"""Coefficients of the timing model that fit what was measured, and which of them the measurement determines.

Least squares on observations, each with the error that its rounding and the noise of a device suggest; those that are
far off count less (Huber). What instructions cost is asked anew for every coefficient, so that whatever the cost
formulas do with it is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nki.profiling.measured.capture import Capture
from nki.profiling.measured.matching import Matched
from nki.profiling.measured.observations import Observation, Prices, Timed, Trips, observe, timed
from nki.spec.program import Program
from nki.target.model import Target

ROUNDS = 8
"""Most steps towards the best coefficients."""
SELECTIONS = 3
"""How often observations are chosen anew."""
ROUNDING_NS, NOISE = 1.0, 0.02
"""Error of an observation: ns, and part of it."""
MODEL = 0.002
"""Part of a time by which even the best coefficients may miss it."""
SURE = 0.02
"""Relative standard error up to which a coefficient counts as determined."""
PULL = 0.7
"""Relative distance from the value before that counts as one error."""
_LEAST_SPREAD = 0.1
"""Least error of observations, in parts of what is assumed: nothing is known better because few happen to agree."""
_HUBER = 2.0
_STEP = 0.02
_ENOUGH = 1e-3
_SETTLED = 5e-3
_NOTHING = 1e-6


class Coefficient(NamedTuple):
    """A coefficient after the fit.

    Attributes:
        name: in the table ``timing``.
        before, value: of the target, and fitted; equal if it is left.
        error: relative standard error; infinite if nothing tells it.
        observations: that depend on it.
        fitted: whether it was determined.
        why: why it was left, or "".
    """

    name: str
    before: float
    value: float
    error: float
    observations: int
    fitted: bool
    why: str


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
        slopes = self._slopes(self.before, predicted, np.ones(len(self.names), bool))
        touched = np.sum(np.abs(slopes) > _NOTHING, axis=0)
        values, predicted, slopes = self._settled(touched > 0)
        errors = self._errors(slopes, self._residuals(predicted), touched > 0)
        kept = errors <= SURE
        values = np.where(kept, values, self.before)
        return Fit(
            [self._coefficient(at, values, errors, touched) for at in range(len(self.names))],
            self.seen,
            self._mean(self.before),
            self._mean(values),
        )

    def _observe(self, values: np.ndarray) -> None:
        """Observe what waits for nothing else with these coefficients; with others it may be something else."""
        self._last = timed(self.programs, self._target(values), self.trips, self._last)
        self.seen, self.examples = observe(self.matched, self.capture, self._last)
        self.measured = np.array([each.measured for each in self.seen])
        noise = np.hypot(ROUNDING_NS, NOISE * np.array([each.long for each in self.seen]))
        self.sigma = noise / np.sqrt([each.times for each in self.seen]) + MODEL * self.measured

    def _settled(self, free: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best coefficients for the observations that they lead to."""
        values, predicted, slopes = self._best(self.before, free)
        for _ in range(SELECTIONS):
            self._observe(values)
            last = values
            values, predicted, slopes = self._best(values, free)
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

    def _best(self, values: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients after steps that each make the error smaller, what they predict, and the slopes there."""
        predicted = self._predicted(values)
        for _ in range(ROUNDS):
            slopes = self._slopes(values, predicted, free)
            change = self._step(values, predicted, slopes, free)
            moved, found = self._smaller(values, predicted, change)
            if moved is None or found is None:
                break
            done = bool(np.max(np.abs(np.log(moved / values))) < _ENOUGH)
            values, predicted = moved, found
            if done:
                break
        return values, predicted, self._slopes(values, predicted, free)

    def _smaller(
        self, values: np.ndarray, predicted: np.ndarray, change: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The step, or a part of it, if that makes the error smaller."""
        cost = self._cost(predicted, values)
        for part in (1.0, 0.5, 0.25, 0.1):
            moved = values * np.exp(np.clip(part * change, -1.0, 1.0))
            found = self._predicted(moved)
            if self._cost(found, moved) < cost:
                return moved, found
        return None, None

    def _slopes(self, values: np.ndarray, predicted: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Change of each prediction for a relative change of each coefficient, in errors of the observation."""
        columns = np.zeros((len(self.seen), len(values)))
        for at in np.flatnonzero(free):
            moved = values.copy()
            moved[at] *= 1.0 + _STEP
            columns[:, at] = (self._predicted(moved) - predicted) / np.log1p(_STEP)
        return columns / self.sigma[:, None]

    def _residuals(self, predicted: np.ndarray) -> np.ndarray:
        return (predicted - self.measured) / self.sigma

    def _cost(self, predicted: np.ndarray, values: np.ndarray) -> float:
        far = np.abs(self._residuals(predicted))
        pulled = np.sum((np.log(values / self.before) / PULL) ** 2) / 2
        return float(np.sum(np.where(far <= _HUBER, far**2 / 2, _HUBER * (far - _HUBER / 2))) + pulled)

    def _step(self, values: np.ndarray, predicted: np.ndarray, slopes: np.ndarray, free: np.ndarray) -> np.ndarray:
        """The best change as far as predictions change in proportion; what nothing tells is pulled back."""
        residuals = self._residuals(predicted)
        weight = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(np.abs(residuals), 1e-12)))
        change = np.zeros(len(free))
        pull = np.eye(int(free.sum())) / PULL
        matrix = np.vstack([slopes[:, free] * weight[:, None], pull])
        goal = np.concatenate([-residuals * weight, -np.log(values[free] / self.before[free]) / PULL])
        change[free] = np.linalg.lstsq(matrix, goal, rcond=None)[0]
        return change

    def _errors(self, slopes: np.ndarray, residuals: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Relative standard errors; infinite where others could take the place of a coefficient."""
        found = np.full(len(free), np.inf)
        if not free.any():
            return found
        kept = np.abs(residuals) <= 3.0 * _HUBER
        freedom = max(1, int(kept.sum()) - int(free.sum()))
        spread = max(_LEAST_SPREAD, float(np.sqrt(np.sum(residuals[kept] ** 2) / freedom)))
        _, sizes, right = np.linalg.svd(slopes[:, free] * kept[:, None], full_matrices=False)
        small = sizes <= _NOTHING * max(float(sizes[0]), 1e-300)
        inverse = np.where(small, 0.0, 1.0 / np.where(small, 1.0, sizes))
        own = spread * np.sqrt(np.sum((right * inverse[:, None]) ** 2, axis=0))
        vague = np.sum(right[small] ** 2, axis=0) > _NOTHING
        found[free] = np.where(vague, np.inf, own)
        return found

    def _mean(self, values: np.ndarray) -> float:
        there = self.measured > 0.0
        if not there.any():
            return 0.0
        return float(np.mean(np.abs(self._predicted(values)[there] / self.measured[there] - 1.0)))


def _counted(count: int) -> str:
    return f"{count} kind of observation tells it" if count == 1 else f"{count} kinds of observations tell it"
