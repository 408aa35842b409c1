"""The gated delta rule, token by token in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def gdn_cte_reference(
    q: Array, k: Array, v: Array, beta: Array, gate: Array | None, scale: float = 1.0
) -> tuple[Array, Array]:
    """The outputs and the last states, in float64."""
    q, k, v, beta = (each.astype(np.float64) for each in (q, k, v, beta))
    batch, steps, width = q.shape
    state, out = np.zeros((batch, width, width)), np.empty(q.shape)
    for t in range(steps):
        if gate is not None:
            state = state * np.exp(gate[:, t].astype(np.float64))[:, None, None]
        wrong = v[:, t] - np.einsum("bd,bde->be", k[:, t], state)
        state = state + np.einsum("bd,be->bde", k[:, t], beta[:, t, None] * wrong)
        out[:, t] = scale * np.einsum("bd,bde->be", q[:, t], state)
    return out, state
