"""The XORWOW generator in NumPy, and the states that a seed is expanded to."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WORDS = 6


def drawn(state: Array, count: int) -> tuple[Array, Array]:
    """The next words (..., count) of generators with states (..., 6) in uint32, and their states afterwards."""
    x, y, z, w, v, d = (state[..., place].copy() for place in range(WORDS))
    words = np.empty((*state.shape[:-1], count), np.uint32)
    for place in range(count):
        t = x ^ (x >> np.uint32(2))
        x, y, z, w, v = y, z, w, v, v ^ (v << np.uint32(4)) ^ t ^ (t << np.uint32(1))
        d = d + np.uint32(362437)
        words[..., place] = d + v
    return words, np.stack([x, y, z, w, v, d], axis=-1)


def seeded(seed: int, *shape: int) -> Array:
    """States (*shape, 6) of a seed of 32 bits: the outputs of SplitMix64 (Steele et al., 2014), lower halves."""
    count = int(np.prod(shape)) * WORDS
    z = np.uint64(seed & 0xFFFFFFFF) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return (z ^ (z >> np.uint64(31))).astype(np.uint32).reshape(*shape, WORDS)
