"""Dropout in NumPy, with the numbers of Vector's generator: four states for each lane that take turns."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from nkilib.experimental.rng.xorwow_reference import drawn, seeded

Array = np.ndarray[Any, Any]

_LANES, _STREAMS = 128, 4
_BYTES = 4096
"""Of elements that a lane gets at once."""


def dropout_reference(x: Array, rate: float, seed: Array, scale: bool = True, lnc: int = 1) -> Array:
    """The result in float64; `lnc` cores divide the elements."""
    grown = 1 / (1 - rate) if scale and rate < 1 else 1.0
    uniform = np.concatenate([_uniform(x, int(seed.item()) ^ core, core, lnc) for core in range(lnc)])
    return np.where(uniform.reshape(x.shape) < np.float32(rate), 0.0, x.astype(np.float64) * grown)


def _uniform(x: Array, seed: int, core: int, lnc: int) -> Array:
    """A number in [0, 1) for each element of a core: on as many lanes as there are, up to 4 KiB on each."""
    state, most = seeded(seed, _LANES, _STREAMS), _BYTES // x.itemsize
    left, numbers = x.size * (core + 1) // lnc - x.size * core // lnc, []
    while left:
        each = min(most, ceil(left / _LANES))
        lanes = min(_LANES, left // each)
        words, state[:lanes] = drawn(state[:lanes], ceil(each / _STREAMS))
        turns = words.transpose(0, 2, 1).reshape(lanes, -1)[:, :each]
        numbers.append((turns >> np.uint32(8)).reshape(-1) * 2.0**-24)
        left -= each * lanes
    return np.concatenate(numbers)
