"""Quantisation to 8-bit floats in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import nki.language as nl
from nkilib.fp8 import largest


def static_quantization_reference(
    hidden_state: NDArray, input_dequant_scale: NDArray, dtype: Any = nl.float8_e4m3fn
) -> NDArray:
    """The first result of `static_quantization`."""
    scaled = hidden_state.astype(np.float64) / float(input_dequant_scale[0, 0])
    return np.clip(scaled, -largest(dtype), largest(dtype)).astype(dtype.numpy)


def row_quantization_reference(
    hidden_state: NDArray, dtype: Any = nl.float8_e4m3fn, output_dtype: Any = None
) -> tuple[NDArray, NDArray]:
    """See `row_quantization`."""
    wide = hidden_state.astype(np.float64)
    axes = (1,) if wide.ndim == 2 else (0, 2)
    scale = np.maximum(np.abs(wide).max(axes, keepdims=True) / largest(dtype), 1e-6)
    scales = np.broadcast_to(scale, (*wide.shape[:-1], 1)).astype(np.float32)
    return (wide / scale).astype(output_dtype.numpy if output_dtype else hidden_state.dtype), scales
