"""Coefficients of collectives that fit measured times, and which of them the measurements determine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nki.core.least_squares import NOTHING, Coefficient, LeastSquares
from nki.target.model import Target
from nki.target.names import COLLECTIVE
from nki.topology.load import with_coefficients
from nki.topology.records import Instance
from nki.topology.times import collective_time

NOISE = 0.05
"""Error of a measured time, in parts of it, by which a fit weighs measurements."""
SURE = 0.25
"""Relative standard error up to which a coefficient counts as determined."""


class Run(NamedTuple):
    """One collective whose time was measured.

    Attributes:
        operation, nbytes, lists: as of `collective_time`.
        ns: that it took.
    """

    operation: str
    nbytes: float
    lists: tuple[tuple[int, ...], ...]
    ns: float


class CollectiveFit(NamedTuple):
    """Coefficients after a fit, the runs, and the ns that the model has for each of them before and after."""

    coefficients: tuple[Coefficient, ...]
    runs: tuple[Run, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]


def fit(runs: Sequence[Run], instance: Instance, target: Target) -> CollectiveFit:
    """Fit the coefficients that times depend on; those that stay unsure are left as they were.

    Raises:
        TargetError: ``topology.operation``.
    """
    names = tuple(COLLECTIVE)
    known = with_coefficients(instance, target).collective
    before = np.array([getattr(known, name) for name in names])

    def predicted(values: np.ndarray) -> np.ndarray:
        own = _with(target, dict(zip(names, map(float, values), strict=True)))
        return np.array([collective_time(run.operation, run.nbytes, run.lists, instance, own).ns for run in runs])

    measured = np.array([run.ns for run in runs])
    problem = LeastSquares(before, measured, NOISE * measured, predicted)
    first = predicted(before)
    touched = np.sum(np.abs(problem.slopes(before, first, np.ones(len(names), bool))) > NOTHING, axis=0)
    values, found, slopes = problem.best(before, touched > 0)
    errors = problem.errors(slopes, problem.residuals(found), touched > 0)
    values = np.where(errors <= SURE, values, before)
    coefficients = tuple(
        Coefficient(name, float(before[at]), float(values[at]), error, count, *_verdict(error, count))
        for at, (name, error, count) in enumerate(zip(names, map(float, errors), map(int, touched), strict=True))
    )
    return CollectiveFit(coefficients, tuple(runs), tuple(map(float, first)), tuple(map(float, predicted(values))))


def _with(target: Target, collective: Mapping[str, float]) -> Target:
    return replace(target, collectives=MappingProxyType(dict(collective)))


def _verdict(error: float, touched: int) -> tuple[bool, str]:
    """Whether a coefficient counts as determined, and why not."""
    if not touched:
        return False, "no run depends on it"
    if not np.isfinite(error):
        return False, f"{touched} runs tell it only together with others"
    return error <= SURE, "" if error <= SURE else f"{touched} runs tell it to {error:.0%} only"
