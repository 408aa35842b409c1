"""The selective scan, step by step in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def selective_scan_reference(
    x: Array, dt: Array, A: Array, B: Array, C: Array, D: Array | None = None, initial_state: Array | None = None
) -> tuple[Array, Array]:
    """The outputs and the last states, in float64."""
    x, dt, A, B, C = (each.astype(np.float64) for each in (x, dt, A, B, C))
    state = np.zeros((*x.shape[:2], A.shape[1])) if initial_state is None else initial_state.astype(np.float64)
    y = np.empty(x.shape)
    for t in range(x.shape[2]):
        change = (dt[:, :, t] * x[:, :, t])[:, :, None] * B[:, None, :, t]
        state = np.exp(dt[:, :, t, None] * A) * state + change
        y[:, :, t] = (state * C[:, None, :, t]).sum(-1)
    return y if D is None else y + D.astype(np.float64)[:, None] * x, state
