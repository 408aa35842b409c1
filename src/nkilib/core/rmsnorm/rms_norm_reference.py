"""Normalisation by the root of the mean square in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rms_norm_reference(x: NDArray, gamma: NDArray | None = None, eps: float = 1e-6) -> NDArray:
    """See `rms_norm`."""
    wide = x.astype(np.float64)
    factor = 1.0 if gamma is None else gamma.astype(np.float64).reshape(-1)
    return (wide / np.sqrt(np.mean(wide**2, -1, keepdims=True) + eps) * factor).astype(x.dtype)


def rms_norm_backward_reference(
    dy: NDArray, x: NDArray, gamma: NDArray | None = None, eps: float = 1e-6
) -> NDArray | tuple[NDArray, NDArray]:
    """See `rms_norm_backward`."""
    wide, above = x.astype(np.float64), dy.astype(np.float64)
    inverse = 1 / np.sqrt(np.mean(wide**2, -1, keepdims=True) + eps)
    factor = 1.0 if gamma is None else gamma.astype(np.float64).reshape(-1)
    scaled = above * factor
    dx = (scaled - wide * inverse**2 * np.mean(scaled * wide, -1, keepdims=True)) * inverse
    if gamma is None:
        return dx.astype(x.dtype)
    of_gamma = (above * wide * inverse).reshape(-1, x.shape[-1]).sum(0)
    return dx.astype(x.dtype), of_gamma.reshape(gamma.shape).astype(gamma.dtype)
