"""Cross entropy and its gradient in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import nki.language as nl


def cross_entropy_forward_reference(
    logits_hbm: NDArray,
    targets_hbm: NDArray,
    positions_per_batch: int = 32,
    chunk_size: int = 32768,
    dtype: Any = nl.bfloat16,
) -> tuple[NDArray, NDArray]:
    """See `cross_entropy_forward`; the sizes change nothing."""
    logits = logits_hbm.astype(np.float64)
    largest = logits.max(-1, keepdims=True)
    lse = np.log(np.exp(logits - largest).sum(-1)) + largest[:, 0]
    loss = lse - logits[np.arange(len(logits)), targets_hbm]
    return loss.astype(dtype.numpy), lse.astype(dtype.numpy)


def cross_entropy_backward_reference(
    logits_hbm: NDArray,
    targets_hbm: NDArray,
    lse_state_hbm: NDArray,
    reduction: str = "mean",
    positions_per_batch: int = 32,
    chunk_size: int = 32768,
    dtype: Any = nl.bfloat16,
    inplace: bool = True,
) -> NDArray:
    """See `cross_entropy_backward`; a new array, also with `inplace`."""
    gradient = np.exp(logits_hbm.astype(np.float64) - lse_state_hbm.astype(np.float64)[:, None])
    gradient[np.arange(len(gradient)), targets_hbm] -= 1
    if reduction == "mean":
        gradient /= len(gradient)
    return gradient.astype(logits_hbm.dtype if inplace else dtype.numpy)
