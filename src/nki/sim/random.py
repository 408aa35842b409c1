"""The engines' random generators: one XORWOW state of six words per lane, deterministic under a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

WORDS = 6
_WEYL = np.uint32(362437)
_STEP = np.uint64(0x9E3779B97F4A7C15)


class Generator:
    """XORWOW for every lane (Marsaglia 2003; trainium3_arch.rst names the algorithm and the six words per state).

    Older Vector engines use an LFSR that no document describes; they get the same generator, so sequences are
    reproducible here but are not those of a device.
    """

    def __init__(self, lanes: int, seed: int) -> None:
        self._lanes = lanes
        self._state = np.empty((lanes, WORDS), np.uint32)
        self.seed(np.array([[seed & 0xFFFFFFFF]], np.uint32))

    def seed(self, words: Any) -> None:
        """Set the state from ``(P, 6 * n)`` words, or expand one word over all lanes (splitmix64)."""
        words = np.asarray(words, np.uint32)
        if words.size == 1:
            start = np.uint64(words.reshape(())) + np.arange(1, self._lanes * WORDS + 1, dtype=np.uint64) * _STEP
            self._state = _splitmix(start).reshape(self._lanes, WORDS)
            return
        self._state[: words.shape[0]] = words[:, :WORDS]

    def state(self, partitions: int, words: int) -> np.ndarray:
        """``(partitions, words)``: the state, repeated if an engine keeps several."""
        return np.tile(self._state[:partitions], (1, -(-words // WORDS)))[:, :words]

    def bits(self, partitions: int, count: int) -> np.ndarray:
        """The next `count` words of the first `partitions` lanes."""
        x, y, z, w, v, d = (self._state[:partitions, i].copy() for i in range(WORDS))
        result = np.empty((partitions, count), np.uint32)
        for i in range(count):
            t = x ^ (x >> np.uint32(2))
            x, y, z, w = y, z, w, v
            v = (v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1)))
            d = d + _WEYL
            result[:, i] = d + v
        self._state[:partitions] = np.stack([x, y, z, w, v, d], axis=1)
        return result


def _splitmix(state: np.ndarray) -> np.ndarray:
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).astype(np.uint32)
