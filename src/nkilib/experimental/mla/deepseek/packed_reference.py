"""What packed operands stand for, in NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def weights(data: Any, compact: Any) -> Any:
    """Weights (K, N) in float64 of packed ones (K / 4, N), and a scale for 128 x 128 of them."""
    words = np.ascontiguousarray(np.asarray(data).view(np.uint32))
    rows, columns = words.shape
    numbers = words.view(ml_dtypes.float8_e4m3fn).astype(np.float64).reshape(rows, columns, 4)
    scales = 2.0 ** (np.asarray(compact).astype(np.float64) - 127)
    wide = np.repeat(np.repeat(scales, 128, axis=0), 128, axis=1)[:, :columns]
    return numbers.transpose(0, 2, 1).reshape(rows * 4, columns) * wide


def quantized(values: Any) -> Any:
    """Numbers in float64 as MX keeps them: 32 neighbours of the last dimension share a power of two."""
    groups = values.reshape(*values.shape[:-1], -1, 32)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        exponents = np.maximum(np.floor(np.log2(largest)) - 7, -127.0)
    rounded = (groups / 2.0**exponents).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return (rounded * 2.0**exponents).reshape(values.shape)


def rounded(values: Any) -> Any:
    """Numbers that were kept in bfloat16, in float64."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)
