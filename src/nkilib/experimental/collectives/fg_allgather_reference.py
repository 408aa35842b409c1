"""The ring of `fg_allgather`, in NumPy, for one core: lists have an array for each rank, those of a ring together."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]


def fine_grained_allgather_reference(
    lhs: Arrays, tp_degree: int, num_groups: int, force_hbm_cc: bool = False
) -> Arrays:
    """The rows of a ring's ranks on each of them, as ``(tp_degree, 1, 1, m, K)``."""
    rings = [lhs[first : first + tp_degree] for first in range(0, tp_degree * num_groups, tp_degree)]
    return [np.stack(ring)[:, None, None] for ring in rings for _ in ring]
