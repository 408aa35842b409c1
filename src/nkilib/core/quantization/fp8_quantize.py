"""Quantisation of tensors in SBUF to 8-bit floats, for kernels that multiply what comes out::

    static:  clip(x / scale, -largest, largest)                  one scale, known beforehand
    row:     x / scale, scale = max(max|x| / largest, 1e-6)      one scale for each row, or token

Layouts: (P, F), a row on each partition; or (P, tokens, F), where a token lies on all partitions. Dtypes: bfloat16,
float16 or float32; scales are float32. Limits: at most 128 tokens.

Plan: Vector finds the largest magnitudes, and multiplies and clips in two passes. Where a token lies on all partitions,
the Tensor engine transposes the largest of each, and sends the largest of all back to every partition.

Source: nki/library/api/fp8-quantize.rst.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.fp8 import largest
from nkilib.streaming import psum, transpose

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)
_FORMATS = (nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2)
_LEAST_SCALE = 1e-6


def static_quantization(
    hidden_state: Any,
    input_dequant_scale: Any,
    quant_scale: Any = None,
    dtype: Any = nl.float8_e4m3fn,
    sbm: Any = None,
    quantized: Any = None,
) -> tuple[Any, Any]:
    """A tensor over a scale, clipped to the format's largest number.

    Args:
        hidden_state: (P, ...) in SBUF; it stays as it is.
        input_dequant_scale: (P or more, 1) float32 in SBUF, the same number on each partition.
        quant_scale: its inverse, for callers that have it.
        dtype: the format.
        sbm: whose `alloc_stack` places new tiles; by default the compiler places them.
        quantized: gets the result; by default a new tile.

    Returns:
        The result, like `hidden_state`, and `input_dequant_scale`.

    Raises:
        KernelLimit: shapes, dtypes.
    """
    partitions = _checked(hidden_state, dtype)
    if quant_scale is None:
        limits.dtype("input_dequant_scale", input_dequant_scale, (nl.float32,))
        quant_scale = _new(input_dequant_scale.shape, nl.float32, sbm)
        nisa.reciprocal(dst=quant_scale, data=input_dequant_scale)
    limits.between("the partitions of the scale", quant_scale.shape[0], partitions, int(nl.tile_size.pmax))
    quantized = _target("quantized", quantized, hidden_state.shape, dtype, sbm)
    below = _new(hidden_state.shape, nl.float32, sbm)
    nisa.tensor_scalar(
        dst=below,
        data=hidden_state,
        op0=nl.multiply,
        operand0=quant_scale[:partitions],
        op1=nl.minimum,
        operand1=largest(dtype),
    )
    nisa.tensor_scalar(dst=quantized, data=below, op0=nl.maximum, operand0=-largest(dtype))
    return quantized, input_dequant_scale


def row_quantization(
    hidden_state: Any,
    dtype: Any = nl.float8_e4m3fn,
    sbm: Any = None,
    output_dtype: Any = None,
    quantized: Any = None,
    dequant_scale: Any = None,
) -> tuple[Any, Any]:
    """Rows, or tokens, over scales that make their largest magnitude the format's largest number.

    Args:
        hidden_state: (P, F), or (P, tokens, F), in SBUF; it stays as it is.
        dtype: the format.
        sbm: whose `alloc_stack` places new tiles; by default the compiler places them.
        output_dtype: of the result, the format or another one; by default that of `hidden_state`.
        quantized: gets the result; by default a new tile.
        dequant_scale: gets the scales, (P, 1) or (P, tokens) float32; by default a new tile.

    Returns:
        The result, like `hidden_state`, and the scales, (P, 1) or (P, tokens, 1).

    Raises:
        KernelLimit: shapes, dtypes, more than 128 tokens.
    """
    partitions = _checked(hidden_state, dtype)
    dimensions = len(hidden_state.shape)
    limits.need(
        dimensions in (2, 3), "hidden_state", list(hidden_state.shape), "it is (P, F) or (P, T, F)", "reshape it"
    )
    rows = 1 if dimensions == 2 else hidden_state.shape[1]
    limits.between("tokens", rows, 1, int(nl.tile_size.pmax), "their largest magnitudes are transposed")
    tile = hidden_state.reshape((partitions, rows, hidden_state.shape[-1]))
    scale = _target("dequant_scale", dequant_scale, (partitions, rows), nl.float32, sbm)
    _magnitudes(tile, scale, sbm)
    if dimensions == 3:
        _over_partitions(scale)
    most = largest(dtype)
    nisa.tensor_scalar(
        dst=scale, data=scale, op0=nl.multiply, operand0=1.0 / most, op1=nl.maximum, operand1=_LEAST_SCALE
    )
    inverse = _new(scale.shape, nl.float32, sbm)
    nisa.reciprocal(dst=inverse, data=scale)
    quantized = _target("quantized", quantized, hidden_state.shape, output_dtype or hidden_state.dtype, sbm)
    nisa.tensor_tensor(
        dst=quantized.reshape(tile.shape),
        data1=tile,
        data2=inverse.reshape((partitions, rows, 1)).broadcast(2, tile.shape[2]),
        op=nl.multiply,
    )
    return quantized, scale if dimensions == 2 else scale.reshape((partitions, rows, 1))


def pre_combine_dequant_scales(input_dequant_scale: Any, weight_dequant_scale: Any, sbm: Any = None) -> Any:
    """The scales of products, ``weight_dequant_scale * input_dequant_scale``.

    Args:
        input_dequant_scale: (P, 1) float32 in SBUF.
        weight_dequant_scale: (P, n) in SBUF.
        sbm: whose `alloc_stack` places the new tile; by default the compiler places it.

    Returns:
        (P, n) in float32.

    Raises:
        KernelLimit: shapes, dtypes.
    """
    partitions = weight_dequant_scale.shape[0]
    limits.shape("input_dequant_scale", input_dequant_scale, (partitions, 1))
    limits.dtype("input_dequant_scale", input_dequant_scale, (nl.float32,))
    combined = _new(weight_dequant_scale.shape, nl.float32, sbm)
    nisa.tensor_scalar(dst=combined, data=weight_dequant_scale, op0=nl.multiply, operand0=input_dequant_scale)
    return combined


def _checked(tile: Any, dtype: Any) -> int:
    """Partitions of a tile, after the check of its dtype and of the format."""
    limits.dtype("hidden_state", tile, _FLOATS)
    limits.one_of("dtype", dtype, _FORMATS)
    return int(tile.shape[0])


def _new(shape: Any, dtype: Any, sbm: Any) -> Any:
    allocate = nl.ndarray if sbm is None else sbm.alloc_stack
    return allocate(tuple(shape), dtype=dtype, buffer=nl.sbuf)


def _target(name: str, given: Any, shape: Any, dtype: Any, sbm: Any) -> Any:
    """What a result goes to: the tile that was given, or a new one."""
    if given is None:
        return _new(shape, dtype, sbm)
    limits.shape(name, given, tuple(shape))
    limits.dtype(name, given, (dtype,))
    return given


def _magnitudes(tile: Any, into: Any, sbm: Any) -> None:
    """The largest magnitude of each row (partitions, rows, columns) of each partition."""
    absolute = _new(tile.shape, nl.float32, sbm)
    nisa.tensor_scalar(dst=absolute, data=tile, op0=nl.abs, operand0=0.0)
    nisa.tensor_reduce(dst=into, op=nl.maximum, data=absolute, axis=[2])


def _over_partitions(tile: Any) -> None:
    """The largest of each column (partitions, rows), on every partition."""
    partitions, rows = tile.shape
    of_rows = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=of_rows, op=nl.maximum, data=transpose(tile), axis=[1])
    everywhere = psum((partitions, rows))
    eye = nl.shared_identity_matrix(rows, nl.float32)
    nisa.nc_matmul(dst=everywhere, stationary=of_rows.broadcast(1, partitions), moving=eye)
    nisa.tensor_copy(dst=tile, src=everywhere)
