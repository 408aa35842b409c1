"""Norms of tensors in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def l2_norm_kernel_reference(data: NDArray, numel: int) -> NDArray:
    """See `l2_norm_kernel`."""
    return np.sqrt(np.sum(data.astype(np.float64) ** 2)).reshape(1, 1).astype(data.dtype)


def l1_norm_kernel_reference(data: NDArray, numel: int) -> NDArray:
    """See `l1_norm_kernel`."""
    return np.abs(data.astype(np.float64)).sum().reshape(1, 1).astype(data.dtype)


def linf_norm_kernel_reference(data: NDArray, numel: int) -> NDArray:
    """See `linf_norm_kernel`."""
    return np.abs(data.astype(np.float64)).max().reshape(1, 1).astype(data.dtype)
