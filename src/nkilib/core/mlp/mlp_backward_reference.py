"""Gradients of the gated MLP in NumPy."""

from __future__ import annotations

from math import erf, pi
from typing import Any

import numpy as np

from nkilib.core.utils.common_types import ActFnType


def _gated(x: Any, factor: float) -> tuple[Any, Any]:
    """``x * sigmoid(factor * x)`` and its derivative."""
    gate = 1.0 / (1.0 + np.exp(-factor * x))
    return x * gate, gate + factor * x * gate * (1.0 - gate)


def _gelu(x: Any) -> tuple[Any, Any]:
    below = 0.5 * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0)))
    return x * below, below + x * np.exp(-0.5 * x**2) / np.sqrt(2.0 * pi)


FUNCTIONS = {
    ActFnType.SiLU: lambda x: _gated(x, 1.0),
    ActFnType.GELU: _gelu,
    ActFnType.Swish: lambda x: _gated(x, 1.702),
}


def mlp_backward_reference(
    hidden_tensor: Any,
    gate_proj_weights_tensor: Any,
    up_proj_weights_tensor: Any,
    down_proj_weights_tensor: Any,
    gradient: Any,
    activation_fn: ActFnType = ActFnType.SiLU,
) -> list[Any]:
    """What the kernel returns, in float64."""
    x, gate, up, down, dy = (
        np.asarray(each).astype(np.float64)
        for each in (
            hidden_tensor,
            gate_proj_weights_tensor,
            up_proj_weights_tensor,
            down_proj_weights_tensor,
            gradient,
        )
    )
    value, slope = FUNCTIONS[activation_fn](x @ gate)
    u, dh = x @ up, dy @ down.T
    dg, du = dh * u * slope, dh * value
    tokens = (-1, x.shape[-1])
    flat, rows = x.reshape(tokens), (-1, up.shape[1])
    return [
        dg @ gate.T + du @ up.T,
        flat.T @ dg.reshape(rows),
        flat.T @ du.reshape(rows),
        (value * u).reshape(rows).T @ dy.reshape(tokens),
    ]
