"""The projection of attention's heads to hidden states, for many tokens.

Math: ``out[b, s, h] = sum over n, d of attention[b, n, d, s] * weight[n * D + d, h] + bias[h]``.

Layouts: attention is (B, N, D, S), as attention for many tokens writes it, so that the contracted heads already come
first: no transposes. weight is (N * D, H), bias (1, H), the result (B, S, H). bfloat16, float16 or float32; sums are
float32. With ``QuantizationType.STATIC`` weights are float8 with one scale, and attention is divided by its scale,
clipped and rounded to float8, so that two rows of the Tensor engine's array work at once.

Limits: D <= 128. Two cores share H in tiles of 128.

Engines: Tensor holds 128 tokens while weights stream through it; Scalar and Vector each empty half of every strip of
sums. Tensor bounds it where N * D is 512 or more; with fewer heads the stores of the result do.
Source: output-projection-cte.rst of the published library.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nkilib import limits
from nkilib.core.output_projection.checks import check_projection, checked_scale
from nkilib.core.utils.common_types import DtypeMode, QuantizationType
from nkilib.epilogue import Epilogue
from nkilib.fp8 import Static
from nkilib.products import own, products, row_blocks
from nkilib.stacks import batches
from nkilib.streaming import result, size, store

_TOKENS = 1024
"""Tokens of a stack: runs of 2 KiB in HBM, which is as little as loads at the full rate."""


@nki.jit
def output_projection_cte(
    attention: nl.NkiTensor,
    weight: nl.NkiTensor,
    bias: nl.NkiTensor | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    input_scales: nl.NkiTensor | None = None,
    weight_scales: nl.NkiTensor | None = None,
    output_dtype: Any = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
    compact_weight_scales: bool = False,
) -> nl.NkiTensor:
    """``attention @ weight + bias``, for many tokens.

    Args:
        attention: (B, N, D, S) in HBM.
        weight: (N * D, H) in HBM, of the dtype of `attention`; float8 with STATIC.
        bias: (1, H) in HBM, or None.
        quantization_type: NONE or STATIC.
        input_scales: (128, 1), float32, all the same: what `attention` is divided by, with STATIC.
        weight_scales: (128, 1), float32, all the same: what `weight` was divided by, with STATIC.
        output_dtype: of the result, by default that of `attention`.
        dtype_mode: which float8 STATIC computes with.
        compact_weight_scales: scales of blocks, for MX.

    Returns:
        (B, S, H) in HBM.

    Raises:
        KernelLimit: shapes or dtypes that do not fit together, or an option that is not built.
    """
    scales = checked(attention, weight, bias, quantization_type, input_scales, weight_scales, compact_weight_scales)
    width, batch, sequence = weight.shape[1], attention.shape[0], attention.shape[3]
    out = result((batch, sequence, width), output_dtype or attention.dtype)
    static = Static(*scales, dtype_mode) if quantization_type is QuantizationType.STATIC else None
    project(attention, weight, bias, static, into=out)
    return out


def project(attention: Any, weight: Any, bias: Any, static: Static | None, into: Any) -> None:
    """The projection of heads (B, N, D, S) into (B, S, H), arguments checked; cores share H."""
    depth, width = weight.shape
    batch, sequence = attention.shape[0], attention.shape[3]
    heads = attention.reshape((batch, depth, sequence))
    for block in row_blocks(batch * sequence, depth, attention.dtype.itemsize):
        stacks = (static.quantized(stack) if static else stack for stack in batches(heads, block, _TOKENS))
        finish = Epilogue(into.dtype, depth, size(block), bias, static.scale if static else 1.0)
        here = into.reshape((batch * sequence, width))[block]
        for rows, columns, sums in products(stacks, weight, columns=own(width, 128), biases=finish.begin):
            store(here[rows, columns], finish(sums, columns))


def checked(
    attention: Any, weight: Any, bias: Any, kind: QuantizationType, inputs: Any, weights: Any, compact: bool
) -> tuple[Any, Any]:
    """Refuse what is not documented, and what is not built; both scales, or None where they are not read."""
    built = (QuantizationType.NONE, QuantizationType.STATIC)
    limits.not_built(
        {"quantization_type": None if kind in built else kind, "compact_weight_scales": compact or None},
        "output_projection_cte",
    )
    sizes = limits.shape("attention", attention, ("B", "N", "D", "S"))
    check_projection(attention, weight, bias, kind, sizes)
    static = kind is QuantizationType.STATIC
    return (
        checked_scale("output_projection_cte", "input_scales", inputs, static),
        checked_scale("output_projection_cte", "weight_scales", weights, static),
    )
