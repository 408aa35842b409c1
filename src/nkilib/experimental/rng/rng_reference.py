"""The generator of GpSimd in NumPy: one state, which lasts from call to call as that of the engine does."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nkilib.experimental.rng.xorwow_reference import drawn, seeded

Array = np.ndarray[Any, Any]

_GPSIMD = 3
"""Number of the engine, which tells its seed from those of others."""

_SET: list[Array] = []
"""The state of the only generator there is, once it was set."""


def get_rng_state_gpsimd_reference(tensor_state: Array) -> Array:
    """The state that was set, or what the environment's seed is expanded to."""
    seed = int(os.environ.get("NEURON_RT_STOCHASTIC_ROUNDING_SEED") or 0)
    return _SET[0].copy() if _SET else seeded(seed + _GPSIMD, 1)


def set_rng_state_gpsimd_reference(tensor_state: Array) -> Array:
    """Set the state."""
    _SET[:] = [np.array(tensor_state)]
    return np.array(tensor_state)


def generate_random_reference(output: Array, n_elements: int) -> Array:
    """The next words; as in the engine, a state that was never set is the same at every call."""
    words, after = drawn(get_rng_state_gpsimd_reference(output), n_elements)
    if _SET:
        _SET[:] = [after]
    return words.view(np.int32)
