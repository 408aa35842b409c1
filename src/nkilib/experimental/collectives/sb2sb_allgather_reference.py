"""The gather of `sb2sb_allgather`, in NumPy: lists have an array for each rank of one group."""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]


def allgather_sb2sb_reference(inp: Arrays, replica_groups: Any, tp_degree: int) -> Arrays:
    """All columns on every rank."""
    return [np.concatenate(inp, axis=1) for _ in range(tp_degree)]


allgather_sb2sb_tiled_reference = allgather_sb2sb_reference
