"""What `quantize_block_mxfp8_kernel` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_EXPONENTS = {"float8_e4m3fn": 8, "float8_e5m2": 15}


def quantize_block_mxfp8_kernel_reference(
    src_tensor: Any, return_fp8_dtype: str, run_with_lnc2: bool = False, enable_scale_packing: bool = True
) -> tuple[Any, Any]:
    """Scales and quantized numbers."""
    source = np.asarray(src_tensor, np.float64)
    features, depth = source.shape
    rows = -(-depth // 2048) * 128 if enable_scale_packing else depth // 4
    scales, data = np.zeros((rows, features), np.uint8), np.zeros((depth // 4, features * 4))
    first = offset = 0
    while first < depth:
        count = next(size for size in (512, 256, 128) if size <= depth - first)
        tile, height = first // 512, count // 4
        values = source[:, first : first + count].reshape(features, 4, height).transpose(2, 0, 1)
        largest = np.abs(values).reshape(height // 8, 8, features, 4).max(axis=(1, 3))
        with np.errstate(divide="ignore"):
            exponents = np.floor(np.log2(largest)) - (_EXPONENTS[return_fp8_dtype] - 1) + 127
        found = np.clip(np.nan_to_num(exponents, neginf=0.0), 0, 254)
        spread = np.repeat(found, 8, axis=0)[:, :, None]
        data[first // 4 : first // 4 + height] = (values / 2.0 ** (spread - 127)).reshape(height, features * 4)
        base = tile // 4 * 128 + offset + tile % 4 * 4 if enable_scale_packing else first // 4
        for group in range(height // 8):
            scales[base + group // 4 * 32 + group % 4] = found[group]
        first, offset = first + count, offset + (height if count < 512 else 0)
    return scales, data.astype(getattr(ml_dtypes, return_fp8_dtype))
