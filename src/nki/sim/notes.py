"""What the machine tells while it runs: warnings, once for each place, and printed tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nki.core.source import UNKNOWN, Location
from nki.sim.numpy_arrays import NumpyArrays
from nki.spec.rule import Finding

Report = Callable[[Finding], None]


class Notes(NumpyArrays):
    """Warnings of the running instruction."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._location: Location = UNKNOWN
        self._printer: Callable[[str], None] = partial(print, end="")  # lines whole: other ranks print as well
        self._warned: set[tuple[str, Location]] = set()

    def warn_outside(self, values: Any, low: float, high: float, code: str, message: str, fix: str) -> None:
        if (code, self._location) in self._warned:
            return
        smallest, largest = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        if smallest == 0 and low > 0:
            smallest = np.fmin.reduce(values, axis=None, where=values != 0, initial=largest)
        for value in (smallest, largest):
            if value != 0 and (value < low or value > high):
                self.warn(code, message.format(value=float(value)), fix)

    def check(self, condition: Any, code: str, message: str, fix: str) -> None:
        if not np.all(condition):
            self.warn(code, message, fix)

    def warn(self, code: str, message: str, fix: str, rule: str = "") -> None:
        if (code, self._location) not in self._warned:
            self._warned.add((code, self._location))
            self._report(Finding(code, "warning", message, rule, "", fix, self._location, {}))
