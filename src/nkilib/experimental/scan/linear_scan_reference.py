"""The recurrence of `linear_scan`, step by step in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def linear_scan_reference(decay: Array, data: Array, initial: Array | None = None) -> tuple[Array, Array]:
    """Results in float64, and the last states."""
    state = np.zeros(data.shape[:-1]) if initial is None else initial[..., 0].astype(np.float64)
    result = np.empty(data.shape)
    for step in range(data.shape[-1]):
        state = decay[..., step].astype(np.float64) * state + data[..., step].astype(np.float64)
        result[..., step] = state
    return result, state[..., None]
