"""What `topk_reduce` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def topk_reduce_reference(input: Any, T: int, K: int, token_base_index: int = 1) -> Any:
    """The sum of each token's rows, in float64."""
    rows = np.asarray(input)
    numbers = np.ascontiguousarray(rows[:, -2:]).view(np.int32)[:, 0]
    return np.stack([rows[numbers == token_base_index + t, :-2].astype(np.float64).sum(axis=0) for t in range(T)])
