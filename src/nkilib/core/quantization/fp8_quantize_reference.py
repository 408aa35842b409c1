"""Quantisation to 8-bit floats in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import nki.language as nl
from nkilib.fp8 import largest


def static_quantization_reference(
    hidden_state: NDArray,
    input_dequant_scale: NDArray,
    quant_scale: NDArray | None = None,
    dtype: Any = nl.float8_e4m3fn,
    sbm: Any = None,
    quantized: NDArray | None = None,
) -> tuple[NDArray, NDArray]:
    """The result in the format, and the scale."""
    factor = 1 / float(input_dequant_scale[0, 0]) if quant_scale is None else float(quant_scale[0, 0])
    scaled = hidden_state.astype(np.float64) * factor
    return np.clip(scaled, -largest(dtype), largest(dtype)).astype(dtype.numpy), input_dequant_scale


def row_quantization_reference(
    hidden_state: NDArray,
    dtype: Any = nl.float8_e4m3fn,
    sbm: Any = None,
    output_dtype: Any = None,
    quantized: NDArray | None = None,
    dequant_scale: NDArray | None = None,
) -> tuple[NDArray, NDArray]:
    """The result of rows (..., F), and their scales (..., 1)."""
    wide = hidden_state.astype(np.float64)
    scale = np.maximum(np.abs(wide).max(-1, keepdims=True) / largest(dtype), 1e-6)
    return (wide / scale).astype(output_dtype.numpy if output_dtype else hidden_state.dtype), scale.astype(np.float32)


def of_tokens_reference(hidden_state: NDArray, dtype: Any, output_dtype: Any = None) -> tuple[NDArray, NDArray]:
    """`row_quantization` of a tile (P, tokens, F) in SBUF, where a token lies on all partitions."""
    rows = hidden_state.transpose(1, 0, 2)
    found, scale = row_quantization_reference(rows.reshape(rows.shape[0], -1), dtype, output_dtype=output_dtype)
    scales = np.broadcast_to(scale, (*hidden_state.shape[:2], 1))
    return found.reshape(rows.shape).transpose(1, 0, 2), scales


def pre_combine_dequant_scales_reference(
    input_dequant_scale: NDArray, weight_dequant_scale: NDArray, sbm: Any = None
) -> NDArray:
    """The product in float64."""
    return weight_dequant_scale.astype(np.float64) * input_dequant_scale
