"""The scan of Mamba-2, step by step in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def ssd_reference(
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    chunk_size: int = 128,
    D: Array | None = None,
    initial_state: Array | None = None,
    causal_mask: Array | None = None,
) -> tuple[Array, Array]:
    """The outputs and the last states in float64; chunks and a mask of ones are only a way to compute the same."""
    x, dt, A, B, C = (each.astype(np.float64) for each in (x, dt, A, B, C))
    batch, heads, steps, width = x.shape
    state = np.zeros((batch, heads, B.shape[2], width)) if initial_state is None else initial_state.astype(np.float64)
    y = np.empty(x.shape)
    for t in range(steps):
        change = B[:, None, t, :, None] * (dt[:, :, t, None] * x[:, :, t])[:, :, None, :]
        state = np.exp(dt[:, :, t] * A)[:, :, None, None] * state + change
        y[:, :, t] = (C[:, None, t, :, None] * state).sum(2)
    return y if D is None else y + D.astype(np.float64)[:, None, None] * x, state
