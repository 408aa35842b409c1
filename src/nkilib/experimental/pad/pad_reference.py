"""Padding in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

MODES: dict[str, Literal["edge", "reflect", "wrap"]] = {
    "replicate": "edge",
    "reflect": "reflect",
    "circular": "wrap",
}
"""NumPy's names of the modes."""


def pad_reference(x_ref: Any, padding: Sequence[int], mode: str = "replicate", value: float = 0) -> Any:
    """What the kernel returns."""
    x = np.asarray(x_ref)
    count = len(padding) // 2
    sides = [(0, 0)] * (x.ndim - count) + [(padding[2 * i], padding[2 * i + 1]) for i in reversed(range(count))]
    return np.pad(x, sides, constant_values=value) if mode == "constant" else np.pad(x, sides, MODES[mode])
