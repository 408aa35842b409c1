"""Striped parts of a sequence as parts that follow each other, in NumPy: `x` is a list with an array for each rank."""

from __future__ import annotations

from typing import Any

import numpy as np


def ring_attention_unpermute_reference(x: Any, replica_groups: Any = None, num_workers: int = 1) -> list[Any]:
    """As `ring_attention_unpermute` on every rank."""
    results: list[Any] = [None] * len(x)
    for ring in replica_groups or [range(num_workers)]:
        whole = np.stack([x[rank] for rank in ring], axis=2)
        parts = np.split(whole.reshape(whole.shape[0], -1, whole.shape[3]), len(ring), axis=1)
        for rank, part in zip(ring, parts, strict=True):
            results[rank] = part
    return results
