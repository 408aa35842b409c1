"""The convolution of `conv1d`: that of volumes whose depth and height are 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.conv3d_reference import conv3d_reference

Array = np.ndarray[Any, Any]


def conv1d_reference(
    x_in: Array,
    filters: Array,
    bias: Array | None = None,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
) -> Array:
    """The results in float64."""
    made = conv3d_reference(
        x_in[:, :, None, None, :],
        filters[None, None],
        bias,
        (1, 1, stride),
        (0, 0, 0, 0, padding[0], padding[1]),
        (1, 1, dilation),
        activation_fn,
    )
    return made[:, :, 0, 0]
