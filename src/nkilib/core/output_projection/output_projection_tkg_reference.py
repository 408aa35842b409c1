"""The output projection for few tokens in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkilib.core.utils.common_types import DtypeMode, QuantizationType
from nkilib.fp8_reference import quantized_reference


def output_projection_tkg_reference(
    attention: NDArray,
    weight: NDArray,
    bias: NDArray | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    weight_scale: NDArray | None = None,
    input_scale: NDArray | None = None,
    TRANSPOSE_OUT: bool = False,
    OUT_IN_SB: bool = False,
    sbm: Any = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
) -> NDArray:
    """See `output_projection_tkg`; TRANSPOSE_OUT gives the layout of one core."""
    head, batch, heads, length = attention.shape
    x = attention.astype(np.float64)
    if input_scale is not None:
        x = quantized_reference(x, input_scale) * float(input_scale[0, 0])
    out = x.transpose(1, 3, 2, 0).reshape(batch * length, heads * head) @ weight.astype(np.float64)
    if weight_scale is not None:
        out *= weight_scale[0].astype(np.float64)
    if bias is not None:
        out += bias.astype(np.float64)
    if TRANSPOSE_OUT:
        out = out.reshape(batch * length, 1, 128, -1).transpose(2, 1, 3, 0)
    return out.astype(attention.dtype)
