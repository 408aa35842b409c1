"""Convolution of sequences: ``out[b, co, l] = act(bias[co] + sum of filters[k, ci, co] * x[b, ci, l'])``.

``l' = l * stride + k * dilation - padding[0]``, with zeros outside. It is `conv3d` of depth and height 1: taps of few
channels are stacked on partitions, those of many are views of what is in SBUF. The Tensor engine bounds it where
channels are many, DMA where they are few (conv1d.rst).
"""

from __future__ import annotations

from typing import Any

import nki
from nkilib import limits
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.conv3d import axis, convolved
from nkilib.experimental.conv.geometry import Axis, Space


@nki.jit
def conv1d(
    x_in: Any,
    filters: Any,
    bias: Any = None,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
) -> Any:
    """Convolution of a batch of sequences.

    Args:
        x_in: ``(B, C_in, L)``, bfloat16, float16 or float32.
        filters: ``(K, C_in, C_out)`` in the same dtype.
        bias: ``(C_out,)`` in the same dtype.
        stride, dilation: at least 1.
        padding: zeros before and after.
        activation_fn: of the results.
        lnc_shard: two cores share the output channels; otherwise batches.

    Returns:
        ``(B, C_out, L_out)`` in the same dtype.
    """
    sizes = limits.shape("x_in", x_in, ("B", "C_in", "L"))
    limits.shape("filters", filters, ("K", "C_in", "C_out"), sizes)
    space = Space(Axis(1, 1), Axis(1, 1), axis("L", sizes["L"], sizes["K"], stride, (padding[0], padding[1]), dilation))
    out = convolved(
        x_in.expand_dim(2).expand_dim(2),
        filters.expand_dim(0).expand_dim(0),
        bias,
        space,
        activation_fn,
        lnc_shard,
    )
    return out.reshape((sizes["B"], sizes["C_out"], space.width.outputs))
