"""The convolution of `conv3d_temporal_unroll`, which is that of `conv3d`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.conv3d_reference import conv3d_reference

Array = np.ndarray[Any, Any]


def conv3d_temporal_unroll_reference(
    x_in: Array,
    filters: Array,
    bias: Array | None = None,
    stride: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
    dilation: tuple[int, int, int] = (1, 1, 1),
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
) -> Array:
    """The results in float64; in which order they are summed up changes nothing."""
    return conv3d_reference(x_in, filters, bias, stride, padding, dilation, activation_fn, lnc_shard)
