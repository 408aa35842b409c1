"""Least squares on the coefficients of the timing model, and fits without some of the points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from benchmarks.timing_cases.catalogue import READINGS
from benchmarks.timing_cases.comparison import listed
from benchmarks.timing_cases.runs import Case, Run, compiled
from benchmarks.timing_cases.shapes import cases

from nki.spec.program import Program
from nki.target.load import load_target
from nki.target.model import Target

TARGETS = ("trn1", "trn2", "trn3")
HEIRS = {"trn3": "trn2"}
"""Targets that take coefficients from an older one."""
SIGMA = 0.05
"""Relative error of a point that counts as one."""
PULL = 0.3
"""Relative distance from the documented value that counts as one: what several documents say of one latency differs by
so much. Without the points that show a coefficient, errors of everything else would move it further."""
STEPS = 3
"""Along the slopes of one round."""
MOVED = 0.97
"""What a coefficient is multiplied with to see how errors follow it."""


class Free(NamedTuple):
    """A coefficient that is fitted.

    Attributes:
        name: in the table ``timing``.
        targets: that share it.
        prior: value that documents suggest.
        least, most: bounds.
    """

    name: str
    targets: tuple[str, ...]
    prior: float
    least: float
    most: float

    def of(self, target: str) -> bool:
        """Whether a target has it, from its own points or from an older target."""
        return target in self.targets or HEIRS.get(target) in self.targets


class Model:
    """The points, and the compiled kernels that reproduce them.

    Programs are compiled once, with the coefficients that are on file: the compiler's order follows from them. So after
    a fit that moves them, fit again.
    """

    def __init__(self, free: Sequence[Free], given: dict[str, dict[str, float]]) -> None:
        self.free = tuple(free)
        self.points: list[dict[str, Any]] = listed()["point"]
        self.cases = cases()  # whole kernels: parts of those with the most instructions are scheduled otherwise
        self.parts = cases(small=True)
        self.programs: dict[Case, Program] = {}
        self.bases = {name: _with(load_target(name), given.get(name, {})) for name in TARGETS}

    @property
    def start(self) -> np.ndarray:
        """The coefficients that are on file."""
        return np.array([self.bases[free.targets[0]].timing[free.name] for free in self.free])

    def program(self, case: Case) -> Program:
        """The program of a case, compiled once."""
        if case not in self.programs:
            self.programs[case] = compiled(case)
        return self.programs[case]

    def targets(self, values: np.ndarray) -> dict[str, Target]:
        """The targets with these coefficients."""
        made = {}
        for name, base in self.bases.items():
            changed = {free.name: float(v) for free, v in zip(self.free, values, strict=True) if free.of(name)}
            made[name] = _with(base, changed)
        return made

    def errors(self, values: np.ndarray, wanted: np.ndarray | None = None, parts: bool = False) -> np.ndarray:
        """log(predicted / measured) of all points; NaN for those that are not wanted.

        Args:
            parts: take parts of large kernels.
        """
        targets, runs = self.targets(values), dict[str, Run]()

        def run(name: str) -> Run:
            if name not in runs:
                case = (self.parts if parts else self.cases)[name]
                runs[name] = Run(self.program(case), targets[case.target], case.times)
            return runs[name]

        found = np.full(len(self.points), np.nan)
        for at, point in enumerate(self.points):
            if wanted is None or wanted[at]:
                predicted = READINGS[point["id"]].predicted(run, point.get("launch", 0))
                found[at] = np.log(predicted / point["measured"])
        return found

    def slopes(self, values: np.ndarray) -> np.ndarray:
        """Change of all errors for a relative change of each coefficient, of large kernels that of a part."""
        columns, errors = [], self.errors(values, parts=True)
        for at, free in enumerate(self.free):
            wanted = np.array([free.of(point["target"]) for point in self.points])
            moved = values.copy()
            moved[at] *= MOVED
            columns.append(np.where(wanted, (self.errors(moved, wanted, parts=True) - errors) / np.log(MOVED), 0.0))
        return np.stack(columns, axis=1)

    def step(self, values: np.ndarray, errors: np.ndarray, slopes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The best coefficients as far as errors change in proportion; outliers count less, bounds hold."""
        prior = np.array([free.prior for free in self.free])
        weight = np.sqrt(1.0 / (SIGMA**2 * np.sqrt(1.0 + (errors[rows] / (2 * SIGMA)) ** 2)))
        pulled = np.log(prior / values) / PULL
        matrix = np.vstack([slopes[rows] * weight[:, None], np.eye(len(self.free)) / PULL])
        goal = np.concatenate([-errors[rows] * weight, pulled])
        change = np.linalg.lstsq(matrix, goal, rcond=None)[0]
        moved = values * np.exp(np.clip(change, -1.0, 1.0))
        return np.clip(moved, [free.least for free in self.free], [free.most for free in self.free])


class Fit(NamedTuple):
    """Coefficients, errors of all points with them, and how errors follow them."""

    values: np.ndarray
    errors: np.ndarray
    slopes: np.ndarray


def fitted(model: Model, rounds: int) -> Fit:
    """The coefficients that fit all points best; each round finds the slopes once and takes some steps along them."""
    everything = np.ones(len(model.points), bool)
    values = model.start
    errors = model.errors(values)
    print(f"mean error {mean(errors):.2f} % before", file=sys.stderr)
    slopes = model.slopes(values)
    for number in range(rounds):
        for _ in range(STEPS):
            values = model.step(values, errors, slopes, everything)
            errors = model.errors(values)
            print(f"mean error {mean(errors):.2f} %", file=sys.stderr)
        if number + 1 < rounds:
            slopes = model.slopes(values)
    return Fit(values, errors, slopes)


def left_out(model: Model, fit: Fit, key: Callable[[dict[str, Any]], str]) -> np.ndarray:
    """The errors of every point with coefficients that were fitted without the points that share its key."""
    keys = np.array([key(point) for point in model.points])
    found = np.full(len(keys), np.nan)
    for name in np.unique(keys):
        own = keys == name
        without = fit.values
        for _ in range(3):  # the slopes are those of the whole fit; the errors of the others follow them
            there = fit.errors + fit.slopes @ np.log(without / fit.values)
            without = model.step(without, there, fit.slopes, ~own)
        found[own] = model.errors(without, own)[own]
    return found


def mean(errors: np.ndarray) -> float:
    """Mean absolute error in percent."""
    return float(100 * np.mean(np.abs(np.expm1(errors))))


def _with(target: Target, timing: dict[str, float]) -> Target:
    return replace(target, timing=MappingProxyType({**target.timing, **timing}))
