"""The functions under test as functions of NumPy arrays, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nki import elementary
from nki.isa import alu, functions
from nki.sim.numpy_arrays import NumpyArrays
from nki.spec.operator import Operator
from tests.elementary.references import Reference, Worst


def normal_tail(x: Any, t: Any) -> Any:
    """``Phi(-t)``, the probability that a normal variable lies beyond t >= 0, within 7 ulps."""
    return functions._dropped(x, x.multiply(elementary.lifted_gaussian(x, t, 0.5), elementary.scaled_tail(x, t)))


X: Any = NumpyArrays()
SLOPE = np.float32(0.25)

ELEMENTARY_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: partial(X.elementwise, getattr(elementary, name))
    for name in ("exp", "log", "log1p", "sin", "tanh", "arctan", "erf", "decay", "log1p_unit")
}
ELEMENTARY_FUNCTIONS["normal_tail"] = partial(X.elementwise, normal_tail)

OPERATORS: dict[str, Operator] = {
    value.name: value
    for module in (functions, alu)
    for value in vars(module).values()
    if isinstance(value, Operator) and value.activation
}

ACTIVATION_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: lambda a, operator=operator: functions.apply(X, operator, a, SLOPE)  # type: ignore[misc]
    for name, operator in OPERATORS.items()
}


def power_errors(count: int) -> Worst:
    """Errors of `power` for bases of all exponents, also near 1, and results of all exponents."""
    random = np.random.default_rng(11)
    result = Worst()
    for spread in (1e-6, 1e-3, 0.3, 148.0):
        for _ in range(0, count, 1 << 16):
            logarithm = random.uniform(-spread, min(spread, 127.9), 1 << 16)
            bases = np.exp2(logarithm).astype(np.float32)
            wide = bases.astype(np.longdouble)
            with np.errstate(all="ignore"):
                powers = (random.uniform(-150, 130, bases.size) / np.log2(wide)).astype(np.float32)
                exact = np.power(wide, powers.astype(np.longdouble)).astype(np.float64)
                result.add(Reference(lambda _, exact=exact: exact, 1.0), bases, X.power(bases, powers))
    return result
