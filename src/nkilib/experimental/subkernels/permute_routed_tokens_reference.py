"""What `permute_routed_tokens` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def permute_routed_tokens_reference(hidden_input: Any, expert_index: Any, expert_affinities_masked: Any) -> Any:
    """A row for each choice, sorted by expert."""
    hidden, index, affinities = (np.asarray(each) for each in (hidden_input, expert_index, expert_affinities_masked))
    order = np.argsort(index, axis=None, kind="stable")
    tokens = order // index.shape[1]
    chosen = np.ascontiguousarray(affinities[tokens, index.reshape(-1)[order]][:, None])
    numbers = tokens.astype(np.int32)[:, None]
    return np.concatenate([hidden[tokens], chosen.view(hidden.dtype), numbers.view(hidden.dtype)], axis=1)
