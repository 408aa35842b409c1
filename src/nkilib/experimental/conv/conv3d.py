"""Convolution of volumes, images and sequences in one: `implicit_gemm` over three spatial dimensions.

``out[b, co, d, h, w] = act(bias[co] + sum of filters[kd, kh, kw, ci, co] * x[b, ci, d', h', w'])`` with ``d' = d *
stride + kd * dilation - padding``, and so for height and width; there are zeros outside. The Tensor engine bounds it
where channels are many, DMA where they are few (conv3d.rst; the scheme is that of implicit GEMM, Chetlur et al.,
"cuDNN", 2014).
"""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.geometry import Axis, Space
from nkilib.experimental.conv.implicit_gemm import Convolution, convolve

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)


@nki.jit
def conv3d(
    x_in: Any,
    filters: Any,
    bias: Any = None,
    stride: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
    dilation: tuple[int, int, int] = (1, 1, 1),
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
) -> Any:
    """Convolution of a batch of volumes.

    Args:
        x_in: ``(B, C_in, D, H, W)``, bfloat16, float16 or float32.
        filters: ``(K_d, K_h, K_w, C_in, C_out)`` in the same dtype.
        bias: ``(C_out,)`` in the same dtype.
        stride, dilation: of depth, height and width, at least 1.
        padding: zeros before and after, of depth, of height, of width.
        activation_fn: of the results.
        lnc_shard: two cores share the output channels; otherwise batches and rows.

    Returns:
        ``(B, C_out, D_out, H_out, W_out)`` in the same dtype.
    """
    sizes = limits.shape("x_in", x_in, ("B", "C_in", "D", "H", "W"))
    limits.shape("filters", filters, ("K_d", "K_h", "K_w", "C_in", "C_out"), sizes)
    pairs = list(zip(padding[0::2], padding[1::2], strict=True))
    axes = [
        axis(name, sizes[name], sizes[f"K_{name.lower()}"], step, pair, apart)
        for name, step, pair, apart in zip("DHW", stride, pairs, dilation, strict=True)
    ]
    return convolved(x_in, filters, bias, Space(*axes), activation_fn, lnc_shard)


def axis(name: str, size: int, taps: int, stride: int, padding: tuple[int, int], dilation: int) -> Axis:
    """One dimension, checked.

    Raises:
        KernelLimit: a step below 1 or negative padding (``nkilib.argument``), or no output at all (``nkilib.shape``).
    """
    limits.need(stride >= 1, f"stride of {name}", stride, "a stride is at least 1", "pass 1 for every position")
    limits.need(dilation >= 1, f"dilation of {name}", dilation, "a dilation is at least 1", "pass 1 for neighbours")
    limits.need(min(padding) >= 0, f"padding of {name}", padding, "padding is not negative", "slice the input instead")
    made = Axis(size, taps, stride, *padding, dilation)
    limits.between(f"outputs of {name}", made.outputs, 1, 1 << 30, "the filter fits into the padded input")
    return made


def convolved(x: Any, filters: Any, bias: Any, space: Space, activation: ActFnType | None, by_channels: bool) -> Any:
    """The convolution of ``(B, C_in, D, H, W)`` with ``(K_d, K_h, K_w, C_in, C_out)``, dtypes checked."""
    batch, channels = x.shape[:2]
    wide = filters.shape[-1]
    limits.dtype("x_in", x, _FLOATS)
    limits.same_dtype(x_in=x, filters=filters, bias=bias)
    if bias is not None:
        limits.shape("bias", bias, (wide,))
    if activation is not None:
        limits.one_of("activation_fn", activation, tuple(ActFnType))
    out = streaming.result((batch, wide, *space.outputs), x.dtype)
    rows = filters.reshape((len(space.taps()) * channels, wide))
    convolve(Convolution(x, rows, bias, out, space, activation), by_channels)
    return out
