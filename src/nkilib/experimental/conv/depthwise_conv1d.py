"""Convolution of each channel with a filter of its own, along one dimension.

    out[n, c, t] = sum over s of x[n, c, t * stride + s * dilation - left] * w[c, s]

Shapes: x (N, C, 1, W), w (C, 1, 1, S), out (N, C, 1, Q), with zeros around x, and Q = (W + left + right - dilation *
(S - 1) - 1) // stride + 1. dtypes: float32, bfloat16 or float16, both the same; sums are float32.

Plan: channels lie on partitions, and Tensor multiplies them with diagonal matrices, one for each tap: the product of a
shifted view of the input, summed over the taps in PSUM. So nothing is copied for the taps, and Vector is free. Tensor
bounds filters of more than a few taps, DMA the others.

Source: nki/library/api/depthwise-conv1d.rst; products with diagonal matrices are what the convolution is.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.experimental.conv.conv3d import axis
from nkilib.experimental.conv.geometry import Axis
from nkilib.streaming import filled, leave, load, psum, result, sbuf, size, spans, store

_FLOATS = (nl.float32, nl.bfloat16, nl.float16)

_DIAGONAL_BYTES = 64 * 1024
"""Of a partition, for the diagonal matrices of all taps."""

_INPUT_BYTES = 16 * 1024
"""Of a partition, for a piece of the input."""


@nki.jit
def depthwise_conv1d_implicit_gemm(
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
    """A convolution of each channel with a filter of its own.

    Args:
        img_ref: (N, C, 1, W).
        filter_ref: (C, 1, 1, S).
        padding: zeros around the dimensions of size 1 and W; none around the first.
        stride, rhs_dilation: steps of the result and of the filter, for the same dimensions.
        feature_group_count: C, as a depthwise convolution has it.
        lhs_dilation, batch_group_count, in_perm, kern_perm, out_perm: only their defaults are built.

    Returns:
        (N, C, 1, Q), of the dtype of img_ref.

    Raises:
        KernelLimit: shapes, dtypes or options that do not fit.
    """
    others = {"lhs_dilation": tuple(lhs_dilation) != (1, 1), "batch_group_count": batch_group_count != 1}
    perms = {"in_perm": in_perm, "kern_perm": kern_perm, "out_perm": out_perm}
    limits.not_built({name: True if asked else None for name, asked in others.items()} | perms, "depthwise convolution")
    width = _checked(img_ref, filter_ref, padding, stride, rhs_dilation, feature_group_count)
    batch, channels = img_ref.shape[0:2]
    out = result((batch, channels, 1, width.outputs), img_ref.dtype)
    cores, core = nl.num_programs(0), nl.program_id(0)
    mine = slice(channels * core // cores, channels * (core + 1) // cores)
    for part in spans(size(mine), _channels_at_once(width.taps, img_ref.dtype)):
        here = slice(mine.start + part.start, mine.start + part.stop)
        _convolve(img_ref[:, here, 0, :], filter_ref[here, 0, 0, :], out[:, here, 0, :], width)
    return out


def _checked(x: Any, filters: Any, padding: Any, stride: Any, dilation: Any, groups: int) -> Axis:
    sizes = limits.shape("img_ref", x, ("N", "C", 1, "W"))
    limits.shape("filter_ref", filters, ("C", 1, 1, "S"), sizes)
    limits.dtype("img_ref", x, _FLOATS)
    limits.same_dtype(img_ref=x, filter_ref=filters)
    limits.need(groups == sizes["C"], "feature_group_count", groups, "each channel is a group", f"pass {sizes['C']}")
    others = {"padding": (padding[0], (0, 0)), "stride": (stride[0], 1), "rhs_dilation": (dilation[0], 1)}
    for name, (value, only) in others.items():
        rule = f"the dimension of size 1 has {name} {only}"
        limits.need(value == only, name, value, rule, f"pass {only} for it")
    return axis("W", sizes["W"], sizes["S"], stride[1], padding[1], dilation[1])


def _channels_at_once(taps: int, dtype: Any) -> int:
    """Channels whose diagonal matrices have room."""
    channels = nl.tile_size.pmax
    while channels > 1 and taps * channels * dtype.itemsize > _DIAGONAL_BYTES:
        channels //= 2
    return int(channels)


def _convolve(x: Any, filters: Any, out: Any, width: Axis) -> None:
    """All results of up to 128 channels: x and out ``(batch, channels, ...)``, filters ``(channels, taps)`` in HBM."""
    bank, turn = nl.tile_size.psum_bank_fmax, 0
    diagonals = _diagonals(load(filters))
    many = max(bank, _INPUT_BYTES // (x.dtype.itemsize * width.stride) // bank * bank)
    for some in spans(x.shape[0], max(1, bank // width.outputs)):
        for piece in spans(width.outputs, many):
            tile = _padded(x[some].permute((1, 0, 2)), width, piece)
            made = sbuf((*tile.shape[0:2], size(piece)), out.dtype)
            for part in spans(size(piece), bank):
                sums = psum((*tile.shape[0:2], size(part)))
                for tap in range(width.taps):
                    first = part.start * width.stride + tap * width.dilation
                    moving = tile[:, :, first : first + (size(part) - 1) * width.stride + 1 : width.stride]
                    nisa.nc_matmul(dst=sums, stationary=diagonals[:, tap, :], moving=moving, accumulate=tap > 0)
                leave(made[:, :, part], sums, turn)
                turn += 1
            store(out[some, :, piece].permute((1, 0, 2)), made)


def _padded(x: Any, width: Axis, piece: slice) -> Any:
    """What some results read of x ``(channels, batch, width)``, with its zeros, in SBUF."""
    needed = width.reach(piece)
    start, stop = max(needed.start, 0), min(needed.stop, width.size)
    shape = (*x.shape[0:2], size(needed))
    tile = filled(shape, x.dtype, 0.0) if stop - start < size(needed) else sbuf(shape, x.dtype)
    if start < stop:
        nisa.dma_copy(dst=tile[:, :, start - needed.start : stop - needed.start], src=x[:, :, start:stop])
    return tile


def _diagonals(filters: Any) -> Any:
    """``(channels, taps, channels)``: for each tap its factors on the diagonal."""
    channels, taps = filters.shape
    tile = sbuf((channels, taps, channels), filters.dtype)
    nisa.tensor_tensor(
        dst=tile,
        data1=nl.shared_identity_matrix(channels, dtype=filters.dtype).expand_dim(1).broadcast(1, taps),
        data2=filters.expand_dim(2).broadcast(2, channels),
        op=nl.multiply,
    )
    return tile
