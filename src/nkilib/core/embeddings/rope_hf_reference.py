"""Rotary position embeddings in the layout of Hugging Face's models, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rope_hf_reference(
    q: NDArray,
    k: NDArray,
    q_out: NDArray,
    k_out: NDArray,
    cos: NDArray | None = None,
    sin: NDArray | None = None,
    rope_cache: NDArray | None = None,
    backward: bool = False,
) -> tuple[NDArray, NDArray]:
    """See `rope_hf`; new arrays, nothing is written to."""
    if rope_cache is not None:
        cos, sin = np.split(rope_cache, 2, axis=-1)
    assert cos is not None and sin is not None
    cos, sin = (each.astype(np.float64)[..., None, : q.shape[2], :] for each in (cos, sin))
    turned = []
    for x in (q, k):
        wide = x.astype(np.float64)
        value = wide * cos - rotated(wide * sin) if backward else wide * cos + rotated(wide) * sin
        turned.append(value.astype(x.dtype))
    return turned[0], turned[1]


def rotated(x: NDArray) -> NDArray:
    """The halves of the last dimension exchanged, and the second one negated."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([-second, first], axis=-1)
