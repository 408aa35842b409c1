"""The products of `fgcc`, in NumPy, for one core: lists have an array for each rank, those of a ring together."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]


def allgather_compute_matmul_reference(
    lhs: Arrays, rhs: Arrays, tp_degree: int, num_groups: int, force_hbm_cc: bool = False
) -> Arrays:
    """Every rank's rows of the ring times a rank's own columns, as ``(tp_degree, 1, 1, m, N)``."""
    made = []
    for rank, right in enumerate(rhs):
        first = rank // tp_degree * tp_degree
        rows = np.stack(lhs[first : first + tp_degree]).astype(np.float64)
        made.append((rows @ right.astype(np.float64))[:, None, None])
    return made
