"""Bounds of every element: what an implementation may compute that rounds as the model says, in any order of its sums.

A bound holds the least and the largest number in float64, and whether NaN is possible too; NaN as least and largest
says that nothing else is. Inputs are points. An operation that is continuous widens a bound by its rounding error; one
that is not, such as a comparison, a conversion or a sort, is computed for both ends, so that both neighbours count
where, and only where, an error decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.graph.differential.records import FLOATS, INTEGERS, NARROW, NUMPY, Array

ULP = 2.0**-23
"""Of float32, relative; half of it is the rounding error of one operation."""

LEAST = 2.0**-126
MOST = float(np.finfo(np.float32).max)

Function = Callable[[Array], Array]


class UndefinedError(Exception):
    """A result that the frameworks leave open, or one about which too little would be known."""


@dataclass(frozen=True, eq=False)
class Bound:
    """Bounds of a tensor: `low` and `high` are float64, `nan` bool, all of its shape."""

    dtype: str
    low: Array
    high: Array
    nan: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def size(self) -> int:
        return self.low.size

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS or self.dtype in NARROW

    @property
    def is_integer(self) -> bool:
        return self.dtype in INTEGERS

    @property
    def exact(self) -> bool:
        """True if each element has one value, infinities and NaN among them."""
        return bool(np.all((self.low == self.high) & ~self.nan | np.isnan(self.low)))

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all() and not self.nan.any())

    @property
    def magnitude(self) -> Array:
        """The largest absolute value of each element."""
        return np.fmax(np.abs(self.low), np.abs(self.high))

    @property
    def middle(self) -> Array:
        with np.errstate(all="ignore"):
            return np.where(self.low == self.high, self.low, self.low / 2 + self.high / 2)

    @property
    def radius(self) -> Array:
        with np.errstate(all="ignore"):
            return np.where(self.low == self.high, 0.0, self.high / 2 - self.low / 2)


def point(array: Array, dtype: str) -> Bound:
    """The bound of an input."""
    with np.errstate(all="ignore"):
        values = array.astype(np.float64)
    return Bound(dtype, values, values, np.isnan(values))


def narrowed(values: Array, dtype: str) -> Array:
    """Rounded to a float type, to nearest even, by way of float32."""
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(NUMPY[dtype]).astype(np.float64)


def rounded(dtype: str, low: Array, high: Array, nan: Array, units: float = 0.0, slack: Array | float = 0.0) -> Bound:
    """The bound of an operation of floats, which is computed in float32 and rounded to its type once.

    Args:
        units: relative error of the operation beside the rounding, in units of the last place of float32.
        slack: absolute error.
    """
    with np.errstate(all="ignore"):
        error = np.fmax(np.abs(low), np.abs(high)) * (units * ULP) + slack
        error = np.where(np.isnan(error), 0.0, error)
        low = np.where(np.isfinite(low), low - error, low)
        high = np.where(np.isfinite(high), high + error, high)
        near_low, near_high = narrowed(low, "float32"), narrowed(high, "float32")
        low = np.where(np.isinf(near_low), near_low, np.fmin(low, near_low))
        high = np.where(np.isinf(near_high), near_high, np.fmax(high, near_high))
        low = np.where((low > 0) & (low < LEAST), 0.0, low)
        high = np.where((high < 0) & (high > -LEAST), -0.0, high)
    if dtype != "float32":
        low, high = narrowed(low, dtype), narrowed(high, dtype)
    return Bound(dtype, low, high, nan | np.isnan(low) | np.isnan(high))


def hull(dtype: str, candidates: list[Array], nan: Array, units: float = 0.0, slack: Array | float = 0.0) -> Bound:
    """The bound around several results; NaN among them is possible."""
    nan = nan | np.logical_or.reduce([np.isnan(c) for c in candidates])
    return rounded(dtype, np.fmin.reduce(candidates), np.fmax.reduce(candidates), nan, units, slack)


def wide(bound: Bound, where: Array) -> Bound:
    """Anything is possible in some places."""
    where = np.broadcast_to(where, bound.shape)
    return Bound(
        bound.dtype,
        np.where(where, -np.inf, bound.low),
        np.where(where, np.inf, bound.high),
        bound.nan | where,
    )


def monotone(
    x: Bound, f: Function, units: float = 0.0, domain: tuple[float, float] = (-np.inf, np.inf), falling: bool = False
) -> Bound:
    """Of a monotone function; outside of its domain is NaN."""
    with np.errstate(all="ignore"):
        outside = (x.low < domain[0]) | (x.high > domain[1])
        never = (x.high < domain[0]) | (x.low > domain[1])
        low, high = f(np.clip(x.low, *domain)), f(np.clip(x.high, *domain))
        if falling:
            low, high = high, low
        low, high = np.where(never, np.nan, low), np.where(never, np.nan, high)
    return rounded(x.dtype, low, high, x.nan | outside, units)


def lipschitz(x: Bound, f: Function, slope: float, units: float = 0.0, slack: Array | float = 0.0) -> Bound:
    """Of a function whose derivative is bounded."""
    with np.errstate(all="ignore"):
        centre, spread = f(x.middle), slope * x.radius
        made = rounded(x.dtype, centre - spread, centre + spread, x.nan | np.isnan(centre), units, slack)
    return wide(made, (x.low != x.high) & np.isinf(x.magnitude) & ~np.isnan(x.low))


def add(x: Bound, y: Bound, dtype: str, sign: int = 1) -> Bound:
    """A sum or a difference."""
    with np.errstate(all="ignore"):
        low, high = (x.low + y.low, x.high + y.high) if sign > 0 else (x.low - y.high, x.high - y.low)
        bad = np.isnan(low) != np.isnan(high)
        low, high = np.where(bad, -np.inf, low), np.where(bad, np.inf, high)
    return rounded(dtype, low, high, x.nan | y.nan | bad)


def multiply(x: Bound, y: Bound, dtype: str, units: float = 0.0) -> Bound:
    """A product."""
    with np.errstate(all="ignore"):
        ends = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    crosses = (_straddles(x) & np.isinf(y.magnitude)) | (_straddles(y) & np.isinf(x.magnitude))
    return hull(dtype, ends, x.nan | y.nan | crosses, units)


def divide(x: Bound, y: Bound, dtype: str) -> Bound:
    """A quotient; anything where the divisor may be of either sign."""
    with np.errstate(all="ignore"):
        ends = [a / b for a in (x.low, x.high) for b in (y.low, y.high)]
    return wide(hull(dtype, ends, x.nan | y.nan, 1.0), _straddles(y) & np.broadcast_to(True, ends[0].shape))


def _straddles(x: Bound) -> Array:
    return np.asarray((x.low != x.high) & (x.low <= 0) & (x.high >= 0))


def total(x: Bound, axes: tuple[int, ...], keep: bool, count: int | None = None, dtype: str = "") -> Bound:
    """A sum in any order; `count` is how many additions there are, by default all."""
    terms = int(np.prod([x.shape[a] for a in axes])) if count is None else count
    with np.errstate(all="ignore"):
        low, high = x.low.sum(axes, keepdims=keep), x.high.sum(axes, keepdims=keep)
        finite = np.where(np.isfinite(x.magnitude), x.magnitude, 0.0).sum(axes, keepdims=keep)
        bad = np.isnan(low) != np.isnan(high)
        low, high = np.where(bad, -np.inf, low), np.where(bad, np.inf, high)
        slack = finite * (max(terms - 1, 0) * ULP / 2)
    nan = x.nan.any(axes, keepdims=keep) | bad
    return wide(rounded(dtype or x.dtype, low, high, nan, slack=slack), finite > MOST)


def select(condition: Bound, x: Bound, y: Bound, dtype: str) -> Bound:
    """One or the other; both where the condition is open."""
    yes, no = condition.low == 1, condition.high == 0
    low = np.where(yes, x.low, np.where(no, y.low, np.fmin(x.low, y.low)))
    high = np.where(yes, x.high, np.where(no, y.high, np.fmax(x.high, y.high)))
    return Bound(dtype, low, high, np.where(yes, x.nan, np.where(no, y.nan, x.nan | y.nan)))
