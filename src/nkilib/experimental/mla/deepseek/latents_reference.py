"""What the projections of latent attention share, in NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def packed_states(states: Any, width: int) -> Any:
    """Hidden states (B, S, H) in float64 of rows of 8-bit numbers and scales: 32 neighbours have one."""
    rows = np.asarray(states).view(np.uint8)
    numbers = np.ascontiguousarray(rows[..., :width]).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    group = np.arange(width // 32)  # 16 of them in a tile of 512, 4 in a quadrant
    tile, quadrant, inside = group // 16, group % 16 // 4, group % 4
    scales = rows[..., width + tile // 4 * 128 + quadrant * 32 + tile % 4 * 4 + inside].astype(np.float64)
    return numbers * np.repeat(2.0 ** (scales - 127), 32, axis=-1)


def unpermuted(values: Any) -> Any:
    """Feature ``512 t + 4 p + i`` of R from column ``i * R / 4 + 128 t + p``."""
    parts = values.reshape(*values.shape[:-1], 4, -1, 128)
    return np.moveaxis(parts, -3, -1).reshape(values.shape)


def normalized(values: Any, gamma: Any, eps: float) -> Any:
    """Values divided by their root mean square, times gamma (1, R)."""
    return values / np.sqrt((values**2).mean(-1, keepdims=True) + eps) * np.asarray(gamma).astype(np.float64)[0]


def rotated(values: Any, cos: Any, sin: Any, *, interleaved: bool) -> Any:
    """Pairs of (B, S, heads, R) rotated: neighbours, or numbers that lie R / 2 apart."""
    half = values.shape[-1] // 2
    c, s = (np.asarray(each).astype(np.float64)[:, :, None, :half] for each in (cos, sin))
    pairs = values.reshape(*values.shape[:-1], half, 2) if interleaved else values.reshape(*values.shape[:-1], 2, half)
    axis = -1 if interleaved else -2
    a, b = np.moveaxis(pairs, axis, 0)
    return np.stack([a * c - b * s, a * s + b * c], axis=axis).reshape(values.shape)
