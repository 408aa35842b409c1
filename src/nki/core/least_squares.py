"""Positive numbers that fit what was measured: least squares in which far-off measurements count less (Huber)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ROUNDS = 8
"""Most steps towards the best numbers."""
PULL = 0.7
"""Relative distance from the number before that counts as one error."""
_LEAST_SPREAD = 0.1
"""Least error of measurements, in parts of what is assumed: nothing is known better because few happen to agree."""
HUBER = 2.0
_STEP = 0.02
_ENOUGH = 1e-3
NOTHING = 1e-6


class Coefficient(NamedTuple):
    """A coefficient after the fit.

    Attributes:
        name: in the table that it stands in.
        before, value: as it was, and fitted; equal if it is left.
        error: relative standard error; infinite if nothing tells it.
        observations: measurements that depend on it.
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


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Measurements, and what numbers predict of them.

    Attributes:
        before: the numbers that are known, all positive; where nothing is told the fit stays near them.
        measured, sigma: what was measured, and the error of each.
        predicted: of all measurements, from numbers.
    """

    before: np.ndarray
    measured: np.ndarray
    sigma: np.ndarray
    predicted: Callable[[np.ndarray], np.ndarray]

    def best(self, values: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers after steps that each make the error smaller, what they predict, and the slopes there."""
        predicted = self.predicted(values)
        for _ in range(ROUNDS):
            slopes = self.slopes(values, predicted, free)
            change = self._step(values, predicted, slopes, free)
            moved, found = self._smaller(values, predicted, change)
            if moved is None or found is None:
                break
            done = bool(np.max(np.abs(np.log(moved / values))) < _ENOUGH)
            values, predicted = moved, found
            if done:
                break
        return values, predicted, self.slopes(values, predicted, free)

    def slopes(self, values: np.ndarray, predicted: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Change of each prediction for a relative change of each number, in errors of the measurement."""
        columns = np.zeros((len(self.measured), len(values)))
        for at in np.flatnonzero(free):
            moved = values.copy()
            moved[at] *= 1.0 + _STEP
            columns[:, at] = (self.predicted(moved) - predicted) / np.log1p(_STEP)
        return columns / self.sigma[:, None]

    def residuals(self, predicted: np.ndarray) -> np.ndarray:
        """How far off predictions are, in errors of the measurement."""
        return (predicted - self.measured) / self.sigma

    def errors(self, slopes: np.ndarray, residuals: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Relative standard errors; infinite where others could take the place of a number."""
        found = np.full(len(free), np.inf)
        if not free.any():
            return found
        kept = np.abs(residuals) <= 3.0 * HUBER
        freedom = max(1, int(kept.sum()) - int(free.sum()))
        spread = max(_LEAST_SPREAD, float(np.sqrt(np.sum(residuals[kept] ** 2) / freedom)))
        known = slopes[:, free] * kept[:, None]
        missing = np.zeros((max(0, known.shape[1] - known.shape[0]), known.shape[1]))  # fewer measurements than numbers
        _, sizes, right = np.linalg.svd(np.vstack([known, missing]), full_matrices=False)
        small = sizes <= NOTHING * max(float(sizes[0]), 1e-300)
        inverse = np.where(small, 0.0, 1.0 / np.where(small, 1.0, sizes))
        own = spread * np.sqrt(np.sum((right * inverse[:, None]) ** 2, axis=0))
        vague = np.sum(right[small] ** 2, axis=0) > NOTHING
        found[free] = np.where(vague, np.inf, own)
        return found

    def mean_error(self, values: np.ndarray) -> float:
        """Mean relative error of what numbers predict; 0 if nothing was measured."""
        there = self.measured > 0.0
        if not there.any():
            return 0.0
        return float(np.mean(np.abs(self.predicted(values)[there] / self.measured[there] - 1.0)))

    def _smaller(
        self, values: np.ndarray, predicted: np.ndarray, change: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The step, or a part of it, if that makes the error smaller."""
        cost = self._cost(predicted, values)
        for part in (1.0, 0.5, 0.25, 0.1):
            moved = values * np.exp(np.clip(part * change, -1.0, 1.0))
            found = self.predicted(moved)
            if self._cost(found, moved) < cost:
                return moved, found
        return None, None

    def _cost(self, predicted: np.ndarray, values: np.ndarray) -> float:
        far = np.abs(self.residuals(predicted))
        pulled = np.sum((np.log(values / self.before) / PULL) ** 2) / 2
        return float(np.sum(np.where(far <= HUBER, far**2 / 2, HUBER * (far - HUBER / 2))) + pulled)

    def _step(self, values: np.ndarray, predicted: np.ndarray, slopes: np.ndarray, free: np.ndarray) -> np.ndarray:
        """The best change as far as predictions change in proportion; what nothing tells is pulled back."""
        residuals = self.residuals(predicted)
        weight = np.sqrt(np.minimum(1.0, HUBER / np.maximum(np.abs(residuals), 1e-12)))
        change = np.zeros(len(free))
        pull = np.eye(int(free.sum())) / PULL
        matrix = np.vstack([slopes[:, free] * weight[:, None], pull])
        goal = np.concatenate([-residuals * weight, -np.log(values[free] / self.before[free]) / PULL])
        change[free] = np.linalg.lstsq(matrix, goal, rcond=None)[0]
        return change
