"""Quantisation to 8-bit floats, of tensors in HBM, and of tiles in SBUF for kernels that go on with what comes out::

    static:  clip(x / scale, -largest, largest)                  one scale, known beforehand
    row:     x / scale, scale = max(max|x| / largest, 1e-6)      one scale for each row, or token

Layouts: in HBM any number of dimensions, all but the last are rows. In SBUF (P, F), a row on each partition; or (P,
tokens, F), where a token lies on all partitions. Dtypes: bfloat16, float16 or float32; scales are float32. Limits: at
most 128 tokens in SBUF, rows of at most 16,384 in HBM.

Plan: Vector finds the largest magnitudes, and multiplies and clips in two passes; rows of HBM are multiplied by Scalar.
Vector bounds it, and the cores of a launch share the rows. Where a token lies on all partitions, the Tensor engine
transposes the largest of each, and sends the largest of all back to every partition.

Source: nki/library/api/fp8-quantize.rst.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import flat, limits
from nkilib.fp8 import largest
from nkilib.rows import matrix, row_blocks
from nkilib.streaming import load, psum, result, store, transpose

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)
_FORMATS = (nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2)
_LEAST_SCALE = 1e-6

_LONGEST = 16_384
"""Elements of a row in HBM: it and its magnitudes have room in SBUF."""


@nki.jit
def static_quantization(
    hidden_state: nl.NkiTensor,
    input_dequant_scale: nl.NkiTensor,
    quant_scale: nl.NkiTensor | None = None,
    dtype: Any = nl.float8_e4m3fn,
    sbm: Any = None,
    quantized: nl.NkiTensor | None = None,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """A tensor over a scale, clipped to the format's largest number.

    Args:
        hidden_state: in HBM, or (P, ...) in SBUF; it stays as it is.
        input_dequant_scale: float32, the same number on each partition: (128, 1) in HBM, (P or more, 1) in SBUF.
        quant_scale: its inverse, for callers that have it, where the scale lies.
        dtype: the format.
        sbm: whose `alloc_stack` places new tiles in SBUF; by default the compiler places them.
        quantized: gets the result, where `hidden_state` lies; by default a new tensor.

    Returns:
        The result, like `hidden_state`, and `input_dequant_scale`.

    Raises:
        KernelLimit: shapes, dtypes, a manager for what lies in HBM.
    """
    if nl.is_sbuf(hidden_state.buffer):
        return _static(hidden_state, input_dequant_scale, quant_scale, dtype, sbm, quantized)
    _in_hbm(hidden_state, dtype, sbm)
    limits.shape("input_dequant_scale", input_dequant_scale, (nl.tile_size.pmax, 1))
    out = _target("quantized", quantized, hidden_state.shape, dtype, None, new=result)
    if quant_scale is None:
        scale, inverse = load(input_dequant_scale), None
    else:
        limits.shape("quant_scale", quant_scale, (nl.tile_size.pmax, 1))
        scale, inverse = None, load(quant_scale)
    for block in flat.blocks(hidden_state.size, hidden_state.dtype):
        (tile,) = flat.tiles(block, hidden_state)
        flat.put(block, out, _static(tile, scale, inverse, dtype, None, None)[0])
    return out, input_dequant_scale


def _static(hidden_state: Any, input_dequant_scale: Any, quant_scale: Any, dtype: Any, sbm: Any, quantized: Any) -> Any:
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


@nki.jit
def row_quantization(
    hidden_state: nl.NkiTensor,
    dtype: Any = nl.float8_e4m3fn,
    sbm: Any = None,
    output_dtype: Any = None,
    quantized: nl.NkiTensor | None = None,
    dequant_scale: nl.NkiTensor | None = None,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """Rows, or tokens, over scales that make their largest magnitude the format's largest number.

    Args:
        hidden_state: (..., F) in HBM, or (P, F) or (P, tokens, F) in SBUF; it stays as it is.
        dtype: the format.
        sbm: whose `alloc_stack` places new tiles in SBUF; by default the compiler places them.
        output_dtype: of the result, the format or another one; by default that of `hidden_state`.
        quantized: gets the result, where `hidden_state` lies; by default a new tensor.
        dequant_scale: gets the scales in float32, (..., 1) in HBM, (P, 1) or (P, tokens) in SBUF; by default a new
            tensor.

    Returns:
        The result, like `hidden_state`, and the scales, (..., 1), (P, 1) or (P, tokens, 1).

    Raises:
        KernelLimit: shapes, dtypes, more than 128 tokens, a manager for what lies in HBM.
    """
    if nl.is_sbuf(hidden_state.buffer):
        return _rows(hidden_state, dtype, sbm, output_dtype, quantized, dequant_scale)
    _in_hbm(hidden_state, dtype, sbm)
    source, kind = matrix(hidden_state), output_dtype or hidden_state.dtype
    limits.between("F", source.shape[1], 1, _LONGEST, "a row lies in SBUF as a whole")
    out = _target("quantized", quantized, hidden_state.shape, kind, None, new=result)
    scales = _target("dequant_scale", dequant_scale, (*hidden_state.shape[:-1], 1), nl.float32, None, new=result)
    for block in row_blocks(source.shape[0], source.shape[1] * hidden_state.dtype.itemsize):
        tile = load(block.of(source))
        scale, made = _new(tile.shape[:2], nl.float32, None), _new(tile.shape, kind, None)
        unused = _new((tile.shape[0], tile.shape[2]), nl.bfloat16, None)
        for row in range(block.each):
            place = scale[:, row : row + 1]
            nisa.tensor_scalar_reduce(
                dst=unused, data=tile[:, row], op0=nl.abs, operand0=0.0, reduce_op=nl.maximum, reduce_res=place
            )
        inverse = _inverse(scale, largest(dtype), None)
        for row in range(block.each):
            nisa.activation(dst=made[:, row], op=nl.copy, data=tile[:, row], scale=inverse[:, row : row + 1])
        store(block.of(matrix(out)), made)
        store(block.of(matrix(scales)), scale)
    return out, scales


def _rows(hidden_state: Any, dtype: Any, sbm: Any, output_dtype: Any, quantized: Any, dequant_scale: Any) -> Any:
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
    quantized = _target("quantized", quantized, hidden_state.shape, output_dtype or hidden_state.dtype, sbm)
    columns = _inverse(scale, largest(dtype), sbm).reshape((*scale.shape, 1)).broadcast(2, tile.shape[2])
    nisa.tensor_tensor(dst=quantized.reshape(tile.shape), data1=tile, data2=columns, op=nl.multiply)
    return quantized, scale if dimensions == 2 else scale.reshape((partitions, rows, 1))


def _inverse(scale: Any, most: float, sbm: Any) -> Any:
    """The inverse of scales, which come as largest magnitudes."""
    nisa.tensor_scalar(
        dst=scale, data=scale, op0=nl.multiply, operand0=1.0 / most, op1=nl.maximum, operand1=_LEAST_SCALE
    )
    inverse = _new(scale.shape, nl.float32, sbm)
    nisa.reciprocal(dst=inverse, data=scale)
    return inverse


@nki.jit
def pre_combine_dequant_scales(
    input_dequant_scale: nl.NkiTensor, weight_dequant_scale: nl.NkiTensor, sbm: Any = None
) -> nl.NkiTensor:
    """The scales of products, ``weight_dequant_scale * input_dequant_scale``.

    Args:
        input_dequant_scale: (P, 1) float32, P at most 128, in HBM or SBUF.
        weight_dequant_scale: (P, n) where the other one lies.
        sbm: whose `alloc_stack` places the new tile in SBUF; by default the compiler places it.

    Returns:
        (P, n) in float32, where the scales lie.

    Raises:
        KernelLimit: shapes, dtypes, a manager for what lies in HBM.
    """
    partitions = weight_dequant_scale.shape[0]
    limits.between("P", partitions, 1, int(nl.tile_size.pmax), "a row lies on each partition")
    limits.shape("input_dequant_scale", input_dequant_scale, (partitions, 1))
    limits.dtype("input_dequant_scale", input_dequant_scale, (nl.float32,))
    if not nl.is_sbuf(weight_dequant_scale.buffer):
        _without_manager(sbm)
        out = result(weight_dequant_scale.shape, nl.float32)
        if nl.program_id(0) == 0:
            store(out, _combined(load(input_dequant_scale), load(weight_dequant_scale), None))
        return out
    return _combined(input_dequant_scale, weight_dequant_scale, sbm)


def _combined(input_dequant_scale: Any, weight_dequant_scale: Any, sbm: Any) -> Any:
    combined = _new(weight_dequant_scale.shape, nl.float32, sbm)
    nisa.tensor_scalar(dst=combined, data=weight_dequant_scale, op0=nl.multiply, operand0=input_dequant_scale)
    return combined


def _in_hbm(hidden_state: Any, dtype: Any, sbm: Any) -> None:
    """Checks of what is streamed from HBM."""
    _checked(hidden_state, dtype)
    _without_manager(sbm)


def _without_manager(sbm: Any) -> None:
    limits.need(
        sbm is None, "sbm", "given, and the tensors lie in HBM", "a manager places tiles of SBUF", "leave sbm out"
    )


def _checked(tile: Any, dtype: Any) -> int:
    """Partitions of a tile, after the check of its dtype and of the format."""
    limits.dtype("hidden_state", tile, _FLOATS)
    limits.one_of("dtype", dtype, _FORMATS)
    return int(tile.shape[0])


def _new(shape: Any, dtype: Any, sbm: Any) -> Any:
    allocate = nl.ndarray if sbm is None else sbm.alloc_stack
    return allocate(tuple(shape), dtype=dtype, buffer=nl.sbuf)


def _target(name: str, given: Any, shape: Any, dtype: Any, sbm: Any, new: Any = None) -> Any:
    """What a result goes to: the tensor that was given, or a new one, by default a tile."""
    if given is None:
        return _new(shape, dtype, sbm) if new is None else new(shape, dtype)
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
