"""The transposed convolution of `conv3d_transpose`, tap by tap in NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.conv3d_reference import activated

Array = np.ndarray[Any, Any]


def conv3d_transpose_reference(
    x_in: Array,
    filters: Array,
    bias: Array | None = None,
    stride: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int] = (0, 0, 0),
    dilation: tuple[int, int, int] = (1, 1, 1),
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
    filter_shape: str = "KDHW_CI_CO",
    sbm: Any = None,
    use_auto_allocation: bool = False,
) -> Array:
    """The results in float64: what each input adds to the outputs of each tap."""
    taps = filters.shape[:3]
    weights = filters.astype(np.float64)
    weights = weights if filter_shape == "KDHW_CI_CO" else weights.swapaxes(3, 4)
    sizes = [
        (n - 1) * step + apart * (count - 1) + 1
        for n, step, apart, count in zip(x_in.shape[2:], stride, dilation, taps, strict=True)
    ]
    out = np.zeros((x_in.shape[0], weights.shape[4], *sizes))
    for tap in product(*map(range, taps)):
        starts = [(count - 1 - k) * apart for k, count, apart in zip(tap, taps, dilation, strict=True)]
        views = [
            slice(start, start + (n - 1) * step + 1, step)
            for start, n, step in zip(starts, x_in.shape[2:], stride, strict=True)
        ]
        out[:, :, views[0], views[1], views[2]] += np.einsum("bidhw,io->bodhw", x_in.astype(np.float64), weights[tap])
    kept = [slice(pad, n - pad) for pad, n in zip(padding, sizes, strict=True)]
    out = out[:, :, kept[0], kept[1], kept[2]]
    out = out if bias is None else out + bias.astype(np.float64)[:, None, None, None]
    return out if activation_fn is None else activated(out, activation_fn)
