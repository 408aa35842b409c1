"""The largest elements of rows in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nkilib.core.topk.rotational_topk import RotationalTopkConfig, SupportedTopkMethods


def topk_reference(
    inp: NDArray,
    k: int,
    sorted_flag: bool = True,
    method: SupportedTopkMethods = SupportedTopkMethods.ROTATIONAL,
) -> tuple[NDArray, NDArray]:
    """See `topk`; sorted, and of equal elements the first ones come first."""
    order = np.argsort(-inp.astype(np.float64), axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(inp, order, -1), order.astype(np.uint32)


def rotational_topk_reference(inp: NDArray, config: RotationalTopkConfig) -> tuple[NDArray, NDArray]:
    """See `rotational_topk`."""
    return topk_reference(inp, config.topk_config.k)
