"""Operators of the first NKI that are NumPy's, and what they are today."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.language as nl

NAMES = {
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "sum": "add",
    "absolute": "abs",
    "true_divide": "divide",
}
"""What is an operator by another name today; NumPy's names among them."""


def today_of(value: Any) -> Any:
    """The operator of nki.language for a ufunc of NumPy; None for anything else."""
    if not isinstance(value, np.ufunc):
        return None
    return getattr(nl, NAMES.get(value.__name__, value.__name__), None)
