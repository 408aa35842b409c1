"""The projection of attention's heads to hidden states, for the few tokens of a decoding step.

Math: ``out[b * S + s, h] = sum over n, d of attention[d, b, n, s] * weight[n * D + d, h] + bias[h]``.

Layouts: attention is (D, B, N, S) in HBM or SBUF, as attention for few tokens writes it; weight is (N * D, H), bias
(1, H). The result is (B * S, H), or with TRANSPOSE_OUT (128, C, H / 128 / C, B * S) on C cores, where
``h = c * H / C + p * H / 128 / C + t``. bfloat16, float16 or float32; sums are float32. Weights may be float8, with a
scale for each column (ROW), or with one scale and attention rounded to float8 too (STATIC).

Limits: D <= 128; with OUT_IN_SB, B * S <= 128; with TRANSPOSE_OUT, H a multiple of 128 for each core. Cores share H.

Engines: heads of less than 128 are packed side by side on the partitions, so that Tensor contracts as many rows as it
can; weights stream through it, 4 KiB of a partition at a time. Their loading bounds it.
Source: output-projection-tkg.rst of the published library.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.output_projection.checks import check_projection, checked_scale
from nkilib.core.utils.common_types import DtypeMode, QuantizationType
from nkilib.epilogue import Epilogue, combine
from nkilib.fp8 import Static
from nkilib.products import Slab, Stack, own, products, products_spread
from nkilib.streaming import copy, load, result, sbuf, size, store


@nki.jit
def output_projection_tkg(
    attention: nl.NkiTensor,
    weight: nl.NkiTensor,
    bias: nl.NkiTensor | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    weight_scale: nl.NkiTensor | None = None,
    input_scale: nl.NkiTensor | None = None,
    TRANSPOSE_OUT: bool = False,
    OUT_IN_SB: bool = False,
    sbm: Any = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
) -> nl.NkiTensor:
    """``attention @ weight + bias``, for few tokens.

    Args:
        attention: (D, B, N, S) in HBM or SBUF.
        weight: (N * D, H) in HBM, of the dtype of `attention`; float8 with STATIC and ROW.
        bias: (1, H) in HBM, or None.
        quantization_type: NONE, STATIC or ROW.
        weight_scale: what `weight` was divided by, float32: (128, 1) with STATIC, (128, H) with ROW; rows are equal.
        input_scale: (128, 1), float32, rows are equal: what `attention` is divided by, with STATIC.
        TRANSPOSE_OUT: whether hidden states lie on the partitions.
        OUT_IN_SB: whether the result stays in SBUF: on each core its own part of H, (B * S, H / C) or
            (128, H / 128 / C, B * S).
        sbm: of no effect, as the compiler allocates memory; it is told.
        dtype_mode: which float8 STATIC computes with.

    Returns:
        (B * S, H), or (128, C, H / 128 / C, B * S), in HBM or SBUF.

    Raises:
        KernelLimit: shapes or dtypes that do not fit together, or an option that is not built.
    """
    weight_scale, input_scale = checked(
        attention, weight, bias, quantization_type, weight_scale, input_scale, TRANSPOSE_OUT, OUT_IN_SB, sbm
    )
    static = Static(input_scale, weight_scale, dtype_mode) if input_scale is not None else None
    stack = heads(attention)
    if static is not None:
        stack = static.quantized(stack)
    scale = static.scale if static else 1.0
    factors = None if weight_scale is None or static else weight_scale[0:1]
    if TRANSPOSE_OUT:
        return transposed(stack, weight, bias, scale, factors, attention.dtype, OUT_IN_SB)
    rows, width, mine = stack[0].tile.shape[2], weight.shape[1], own(weight.shape[1], 128)
    out = sbuf((rows, size(mine)), attention.dtype) if OUT_IN_SB else result((rows, width), attention.dtype)
    finish = Epilogue(attention.dtype, weight.shape[0], rows, bias, scale, factors)
    for down, across, sums in products(stack, weight, columns=mine, biases=finish.begin):
        if OUT_IN_SB:
            finish(sums, across, out[:, across.start - mine.start : across.stop - mine.start])
        else:
            store(out[down, across], finish(sums, across))
    return out


def checked(
    attention: Any,
    weight: Any,
    bias: Any,
    kind: QuantizationType,
    weight_scale: Any,
    input_scale: Any,
    transpose: bool,
    inside: bool,
    sbm: Any,
) -> tuple[Any, Any]:
    """Refuse what is not documented, and what is not built; both scales, or None where they are not read."""
    built = (QuantizationType.NONE, QuantizationType.STATIC, QuantizationType.ROW)
    limits.not_built({"quantization_type": None if kind in built else kind}, "output_projection_tkg")
    limits.without_effect("output_projection_tkg", "as the compiler allocates memory", sbm=sbm)
    sizes = limits.shape("attention", attention, ("D", "B", "N", "S"))
    check_projection(attention, weight, bias, kind, sizes)
    static, row = kind is QuantizationType.STATIC, kind is QuantizationType.ROW
    scales = (
        checked_scale("output_projection_tkg", "weight_scale", weight_scale, static or row, sizes["H"] if row else 1),
        checked_scale("output_projection_tkg", "input_scale", input_scale, static),
    )
    if transpose:
        limits.multiple("H", sizes["H"], 128 * nl.num_programs(0), "each core fills 128 partitions")
    if inside:
        limits.between("B * S", sizes["B"] * sizes["S"], 1, 128, "the result lies on so many partitions")
    return scales


def heads(attention: Any) -> Stack:
    """The stack (N * D, B * S): as many heads as fit on the partitions one below the other in each piece."""
    head, batch, count, length = attention.shape
    packed = min(count, nl.tile_size.pmax // head)
    tile = packed_heads(attention, packed)
    stack, whole = [], count - count % packed
    for first, heads_of_piece, pieces in ((0, packed, whole // packed), (whole, count - whole, 1)):
        if not heads_of_piece:
            continue
        height = heads_of_piece * head
        last = first + packed * (pieces - 1)  # the head that the first partitions of the last piece hold
        chosen = tile[0:height].reshape_dim(1, (batch, count, length))[:, :, first : last + 1 : packed]
        made = sbuf((height, pieces, batch * length), attention.dtype)
        nisa.tensor_copy(dst=made.reshape_dim(2, (batch, length)), src=chosen.permute((0, 2, 1, 3)))
        stack.append(Slab(made, first * head))
    return stack


def packed_heads(attention: Any, packed: int) -> Any:
    """(packed * D, B * N * S): all heads on D partitions, and below them again, shifted by one head each time.

    Then a column shows a head, and on the partitions below the heads after it. What lies beyond the last is not read.
    """
    head, batch, count, length = attention.shape
    flat = attention.reshape((head, batch * count * length))
    if packed == 1 and flat.buffer == nl.sbuf:
        return flat
    tile = sbuf((packed * head, flat.shape[1]), attention.dtype)
    for i in range(packed):
        rows, shift = slice(i * head, (i + 1) * head), i * length
        copy(tile[rows, 0 : flat.shape[1] - shift], flat[:, shift:])
    return tile


def transposed(stack: Stack, weight: Any, bias: Any, scale: Any, factors: Any, dtype: Any, inside: bool) -> Any:
    """The result with hidden states on the partitions."""
    cores, core, rows, width = nl.num_programs(0), nl.program_id(0), stack[0].tile.shape[2], weight.shape[1]
    part = width // cores
    mine, count = slice(core * part, (core + 1) * part), part // nl.tile_size.pmax
    tile = sbuf((nl.tile_size.pmax, count, rows), dtype)
    given = {name: row for name, row in (("factors", factors), ("bias", bias)) if row is not None}
    spread_rows = {name: spread(row[:, mine], count) for name, row in given.items()}
    for tiles, down, sums in products_spread(stack, weight, mine):
        beside = {name: repeated(row[:, tiles], size(down)) for name, row in spread_rows.items()}
        combine(tile[:, tiles, down], sums, scale, **beside)
    if inside:
        return tile
    out = result((nl.tile_size.pmax, cores, count, rows), dtype)
    store(out[:, core], tile)
    return out


def spread(row: Any, count: int) -> Any:
    """A row of HBM on the partitions, `count` neighbours on each."""
    return load(row.reshape((nl.tile_size.pmax, count)), nl.float32)


def repeated(columns: Any, rows: int) -> Any:
    """(128, n) as (128, n, rows), without a copy."""
    return columns.expand_dim(2).broadcast(2, rows)
