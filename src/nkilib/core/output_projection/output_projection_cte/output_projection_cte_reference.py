"""The output projection for many tokens in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nkilib.core.utils.common_types import DtypeMode, QuantizationType
from nkilib.fp8_reference import quantized_reference


def output_projection_cte_reference(
    attention: NDArray,
    weight: NDArray,
    bias: NDArray | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    input_scales: NDArray | None = None,
    weight_scales: NDArray | None = None,
    output_dtype: Any = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
    compact_weight_scales: bool = False,
) -> NDArray:
    """See `output_projection_cte`."""
    batch, heads, head, sequence = attention.shape
    x, scale = attention.astype(np.float64), 1.0
    if quantization_type is QuantizationType.STATIC:
        assert input_scales is not None and weight_scales is not None
        x, scale = quantized_reference(x, input_scales), float(input_scales[0, 0]) * float(weight_scales[0, 0])
    rows = x.transpose(0, 3, 1, 2).reshape(batch, sequence, heads * head)
    out = rows @ weight.astype(np.float64) * scale
    if bias is not None:
        out += bias.astype(np.float64)
    return out.astype(output_dtype.numpy if output_dtype else attention.dtype)
