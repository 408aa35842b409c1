"""The convolution of `conv3d`, tap by tap in NumPy."""

from __future__ import annotations

from itertools import product
from math import erf
from typing import Any

import numpy as np

from nkilib.core.utils.common_types import ActFnType

Array = np.ndarray[Any, Any]


def conv3d_reference(
    x_in: Array,
    filters: Array,
    bias: Array | None = None,
    stride: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
    dilation: tuple[int, int, int] = (1, 1, 1),
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
) -> Array:
    """The results in float64; how cores share the work changes nothing."""
    around = [(0, 0), (0, 0), *zip(padding[0::2], padding[1::2], strict=True)]
    x = np.pad(x_in.astype(np.float64), around)
    taps = filters.shape[:3]
    sizes = [
        (size - apart * (count - 1) - 1) // step + 1
        for size, count, step, apart in zip(x.shape[2:], taps, stride, dilation, strict=True)
    ]
    out = np.zeros((x.shape[0], filters.shape[4], *sizes))
    for tap in product(*map(range, taps)):
        starts = [place * apart for place, apart in zip(tap, dilation, strict=True)]
        views = [
            slice(start, start + (size - 1) * step + 1, step)
            for start, size, step in zip(starts, sizes, stride, strict=True)
        ]
        out += np.einsum("bidhw,io->bodhw", x[:, :, views[0], views[1], views[2]], filters[tap].astype(np.float64))
    out = out if bias is None else out + bias.astype(np.float64)[:, None, None, None]
    return out if activation_fn is None else activated(out, activation_fn)


def activated(x: Array, function: ActFnType) -> Array:
    """The activation function of each element."""
    made = {
        ActFnType.SiLU: lambda: x / (1 + np.exp(-x)),
        ActFnType.GELU: lambda: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
        ActFnType.GELU_Tanh_Approx: lambda: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
        ActFnType.Swish: lambda: x / (1 + np.exp(-1.702 * x)),
        ActFnType.ReLU: lambda: np.maximum(x, 0),
        ActFnType.SquaredReLU: lambda: np.maximum(x, 0) ** 2,
    }[function]()
    return np.asarray(made)
