"""Layer normalisation in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def layer_norm_reference(
    x: NDArray, gamma: NDArray | None = None, beta: NDArray | None = None, eps: float = 1e-5
) -> NDArray:
    """See `layer_norm`."""
    normal, _ = _normal(x, eps)
    return (normal * _row(gamma, 1.0) + _row(beta, 0.0)).astype(x.dtype)


def layer_norm_backward_reference(
    dy: NDArray, x: NDArray, gamma: NDArray | None = None, beta: NDArray | None = None, eps: float = 1e-5
) -> tuple[NDArray, ...]:
    """See `layer_norm_backward`."""
    normal, inverse = _normal(x, eps)
    above = dy.astype(np.float64)
    g = above * _row(gamma, 1.0)
    dx = (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True)) * inverse
    found = [dx.astype(x.dtype)]
    for argument, each in ((gamma, above * normal), (beta, above)):
        if argument is not None:
            total = each.reshape(-1, x.shape[-1]).sum(0)
            found.append(total.reshape(argument.shape).astype(argument.dtype))
    return tuple(found)


def _normal(x: NDArray, eps: float) -> tuple[NDArray, NDArray]:
    wide = x.astype(np.float64)
    inverse = 1 / np.sqrt(wide.var(-1, keepdims=True) + eps)
    return (wide - wide.mean(-1, keepdims=True)) * inverse, inverse


def _row(tensor: NDArray | None, otherwise: float) -> NDArray | float:
    return otherwise if tensor is None else tensor.astype(np.float64).reshape(-1)
