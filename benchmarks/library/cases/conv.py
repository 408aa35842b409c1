"""Convolutions of encoders of speech and of video."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

from nkilib.core.utils.common_types import ActFnType

_BYTES = 2


def _scaled(terms: int) -> Any:
    return lambda rng, shape: rng.standard_normal(shape) / np.sqrt(terms)


def _sequence(batch: int, inner: int, wide: int, length: int, taps: int, stride: int = 1) -> dict[str, Any]:
    def arguments(make: Make, length: int = length) -> dict[str, Any]:
        return {
            "x_in": make((batch, inner, length)),
            "filters": make((taps, inner, wide), fill=_scaled(taps * inner)),
            "bias": make((wide,)),
            "stride": stride,
            "padding": (taps // 2, taps // 2),
            "activation_fn": ActFnType.GELU,
        }

    outputs = (length + 2 * (taps // 2) - taps) // stride + 1
    moved = batch * (inner * length + wide * outputs) + taps * inner * wide + wide
    return {
        "arguments": arguments,
        "small": lambda make: arguments(make, 100),
        "flops": 2 * batch * outputs * taps * inner * wide,
        "hbm_bytes": moved * _BYTES,
    }


def _volume(inner: int, wide: int, size: tuple[int, int, int], taps: int = 3) -> dict[str, Any]:
    def arguments(make: Make, size: tuple[int, int, int] = size) -> dict[str, Any]:
        return {
            "x_in": make((1, inner, *size)),
            "filters": make((taps, taps, taps, inner, wide), fill=_scaled(taps**3 * inner)),
            "bias": make((wide,)),
            "padding": (taps // 2,) * 6,
        }

    elements = size[0] * size[1] * size[2]
    return {
        "arguments": arguments,
        "small": lambda make: arguments(make, (2, 9, 17)),
        "flops": 2 * elements * taps**3 * inner * wide,
        "hbm_bytes": (elements * (inner + wide) + taps**3 * inner * wide + wide) * _BYTES,
    }


def _unrolled(inner: int, wide: int, size: tuple[int, int, int], by_rows: bool = False) -> dict[str, Any]:
    """Three taps each way; four depths come out."""

    def arguments(make: Make, size: tuple[int, int, int] = size) -> dict[str, Any]:
        return {
            "x_in": make((1, inner, *size)),
            "filters": make((3, 3, 3, inner, wide), fill=_scaled(27 * inner)),
            "bias": make((wide,)),
            "padding": (0, 0, 1, 1, 1, 1),
            "lnc_shard": by_rows,
        }

    inputs, outputs = size[0] * size[1] * size[2], (size[0] - 2) * size[1] * size[2]
    return {
        "arguments": arguments,
        "small": lambda make: arguments(make, (4, 5, 17)),
        "flops": 2 * outputs * 27 * inner * wide,
        "hbm_bytes": (inputs * inner + outputs * wide + 27 * inner * wide + wide) * _BYTES,
        "official": False,
    }


def _enlarged(inner: int, wide: int, size: tuple[int, int, int], taps: tuple[int, int, int], **more: Any) -> Any:
    """Twice as high and wide, and with two taps of depth twice as deep."""
    step = (2 if taps[0] > 1 else 1, 2, 2)

    def arguments(make: Make, size: tuple[int, int, int] = size) -> dict[str, Any]:
        return {
            "x_in": make((1, inner, *size)),
            "filters": make((*taps, inner, wide), fill=_scaled(taps[0] * taps[1] * taps[2] * inner / 4)),
            "bias": make((wide,)),
            "stride": step,
            "padding": tuple((count - each) // 2 for count, each in zip(taps, step, strict=True)),
        }

    elements, products = size[0] * size[1] * size[2], taps[0] * taps[1] * taps[2]
    outputs = elements * step[0] * step[1] * step[2]
    return {
        "arguments": arguments,
        "small": lambda make: arguments(make, (2, 5, 17)),
        "flops": 2 * elements * products * inner * wide,
        "hbm_bytes": (elements * inner + outputs * wide + products * inner * wide + wide) * _BYTES,
        "official": False,
        **more,
    }


def _depthwise(channels: int, length: int, taps: int) -> dict[str, Any]:
    def arguments(make: Make, length: int = length) -> dict[str, Any]:
        return {
            "img_ref": make((1, channels, 1, length + taps - 1)),
            "filter_ref": make((channels, 1, 1, taps), fill=_scaled(taps)),
            "feature_group_count": channels,
        }

    return {
        "arguments": arguments,
        "small": lambda make: arguments(make, 300),
        "flops": 2 * channels * length * taps,
        "hbm_bytes": channels * (2 * length + 2 * taps - 1) * _BYTES,
    }


CASES = [
    Case("conv1d", "80 to 512 channels, 3 taps, 3000 long", **_sequence(1, 80, 512, 3000, 3)),
    Case("conv1d", "512 to 512 channels, 3 taps, stride 2, 3000 long", **_sequence(1, 512, 512, 3000, 3, 2)),
    Case("conv1d", "4 x 32 to 64 channels, 7 taps, 4096 long", **_sequence(4, 32, 64, 4096, 7)),
    Case("conv3d", "3 to 96 channels, 5 x 64 x 64", **_volume(3, 96, (5, 64, 64)), official=False),
    Case("conv3d", "128 to 128 channels, 4 x 32 x 32", **_volume(128, 128, (4, 32, 32)), official=False),
    Case("conv3d_temporal_unroll", "96 to 3 channels, 6 x 32 x 1024", **_unrolled(96, 3, (6, 32, 1024))),
    Case("conv3d_temporal_unroll", "128 to 16 channels, 6 x 64 x 640", **_unrolled(128, 16, (6, 64, 640))),
    Case("conv3d_temporal_unroll", "96 to 3 channels, 6 x 32 x 1024", lnc=2, **_unrolled(96, 3, (6, 32, 1024), True)),
    Case("conv3d_transpose", "256 to 128 channels, 2 x 32 x 32", **_enlarged(256, 128, (2, 32, 32), (2, 4, 4))),
    Case("conv3d_transpose", "128 to 64 channels, 4 x 64 x 64", **_enlarged(128, 64, (4, 64, 64), (1, 4, 4))),
    Case("conv3d_transpose", "256 to 128 channels, 2 x 32 x 32", **_enlarged(256, 128, (2, 32, 32), (2, 4, 4), lnc=2)),
    Case("depthwise_conv1d_implicit_gemm", "2048 channels, 2048 long, 4 taps", **_depthwise(2048, 2048, 4)),
    Case("depthwise_conv1d_implicit_gemm", "128 channels, 4096 long, 64 taps", **_depthwise(128, 4096, 64)),
    Case("depthwise_conv1d_implicit_gemm", "256 channels, 2048 long, 16 taps", lnc=2, **_depthwise(256, 2048, 16)),
]
