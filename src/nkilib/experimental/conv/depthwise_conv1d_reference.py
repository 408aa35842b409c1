"""Depthwise convolution along one dimension in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def depthwise_conv1d_implicit_gemm_reference(
    img_ref: Any,
    filter_ref: Any,
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    stride: tuple[int, int] = (1, 1),
    rhs_dilation: tuple[int, int] = (1, 1),
    lhs_dilation: tuple[int, int] = (1, 1),
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    in_perm: Any = None,
    kern_perm: Any = None,
    out_perm: Any = None,
) -> Any:
    """What the kernel returns, in float64."""
    x = np.pad(np.asarray(img_ref).astype(np.float64), ((0, 0), (0, 0), (0, 0), padding[1]))
    weights = np.asarray(filter_ref).astype(np.float64)
    taps, step, apart = weights.shape[3], stride[1], rhs_dilation[1]
    count = (x.shape[3] - apart * (taps - 1) - 1) // step + 1
    first = [tap * apart for tap in range(taps)]
    seen = [x[..., start : start + (count - 1) * step + 1 : step] for start in first]
    return sum(each * weights[:, 0, :, tap : tap + 1] for tap, each in enumerate(seen))
