"""What `argsort_unstable` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def argsort_unstable_reference(data: Any, descending: bool = False, output_in_sbuf: bool = False) -> Any:
    """Indices in order; of equal elements the first one comes first."""
    values = np.asarray(data, np.float64)
    return np.argsort(-values if descending else values, axis=1, kind="stable")
