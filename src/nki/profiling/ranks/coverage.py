"""How much of some intervals others cover; intervals are rows of start and end, disjoint and ascending."""

from __future__ import annotations

import numpy as np

from nki.profiling.intervals import outside
from nki.timing.ranks.core import union


class Covered:
    """Time that intervals cover.

    Attributes:
        rows: disjoint and ascending.
        ns: their length.
    """

    def __init__(self, rows: np.ndarray) -> None:
        """Rows may overlap, and be in any order."""
        self.rows = union(rows)
        self._before = np.concatenate(([0.0], np.cumsum(self.rows[:, 1] - self.rows[:, 0])))
        self.ns = float(self._before[-1])

    def until(self, time: np.ndarray) -> np.ndarray:
        """Covered time before each of some times."""
        at = np.searchsorted(self.rows[:, 0], time, side="right")
        inside = np.minimum(time, self.rows[np.maximum(at - 1, 0), 1]) if len(self.rows) else time
        begun = self.rows[np.maximum(at - 1, 0), 0] if len(self.rows) else time
        whole = self._before[np.maximum(at - 1, 0)]
        return np.where(at > 0, whole + inside - begun, 0.0)

    def within(self, rows: np.ndarray) -> np.ndarray:
        """Covered time in each of some intervals."""
        return self.until(rows[:, 1]) - self.until(rows[:, 0])

    def without(self, other: Covered) -> list[tuple[float, float]]:
        """What of it the other does not cover."""
        return outside([(a, b) for a, b in self.rows.tolist()], [(a, b) for a, b in other.rows.tolist()])

    def with_(self, rows: np.ndarray) -> Covered:
        """This, and other intervals."""
        return Covered(np.concatenate((self.rows, rows)))
