"""The largest elements of rows in NumPy."""

from __future__ import annotations

from numpy.typing import NDArray

from nkilib.core.topk.rotational_topk_reference import topk_reference
from nkilib.experimental.topk.gpsimd_topk import GpsimdTopkConfig


def gpsimd_topk_reference(inp: NDArray, config: GpsimdTopkConfig) -> tuple[NDArray, NDArray]:
    """See `gpsimd_topk`."""
    return topk_reference(inp, config.k)
