"""Rotary position embeddings in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def RoPE_reference(
    x_in: NDArray,
    cos: NDArray,
    sin: NDArray,
    lnc_shard: bool = False,
    contiguous_layout: bool = True,
    relayout_in_sbuf: bool = False,
) -> NDArray:
    """See `RoPE`; only the layout changes the result."""
    x, cos, sin = x_in.astype(np.float64), cos.astype(np.float64)[:, :, None], sin.astype(np.float64)[:, :, None]
    half = len(x) // 2
    even, odd = (slice(0, half), slice(half, None)) if contiguous_layout else (slice(0, None, 2), slice(1, None, 2))
    out = np.empty_like(x)
    out[even] = x[even] * cos - x[odd] * sin
    out[odd] = x[odd] * cos + x[even] * sin
    return out.astype(x_in.dtype)
