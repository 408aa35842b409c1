"""Quantization of a matrix to MXFP8: 8-bit numbers, and an 8-bit exponent for every 32 of them (trn3).

Math, for each group of 32 numbers x, 8 of K in each of four places (see `swizzle`)::

    scale = 2 ** (floor(log2(max |x|)) - (Emax - 1))        Emax is 8 for float8_e4m3fn, 15 for float8_e5m2
    data = x / scale, rounded to nearest

Layouts: src_tensor (F, K); data (K / 4, F * 4) and scales (K / 4, F), or packed (ceil(K / 2048) * 128, F), as `swizzle`
says. Rows of scales that belong to no group are 0.

Limits: bfloat16 or float16, K a multiple of 128, NeuronCore-v4.

Engines: DMA brings four numbers of K beside each other while it transposes, and Vector finds scales and quantizes, four
numbers of a row in a cycle; DMA bounds it. Two cores have half of F each.
Source: quantize-mxfp8.rst of the published library; OCP Microscaling Formats Specification 1.0, with the scale of the
instruction quantize_mx.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE, groups, loaded, pieces, quantized
from nkilib.streaming import size

_COLUMNS = 512
"""Of F that are quantized at once."""

_DTYPES = {"float8_e4m3fn": nl.float8_e4m3fn, "float8_e5m2": nl.float8_e5m2}


def should_store_packed_scales(tile_k_idx: int, total_num_tiles: int) -> bool:
    """Whether a tile of K is the last one whose scales go into a packed tensor.

    Args:
        tile_k_idx: number of the tile.
        total_num_tiles: of all tiles.
    """
    return (tile_k_idx + 1) % 4 == 0 or tile_k_idx + 1 == total_num_tiles


@nki.jit
def quantize_block_mxfp8_kernel(
    src_tensor: nl.NkiTensor,
    return_fp8_dtype: str,
    run_with_lnc2: bool = False,
    enable_scale_packing: bool = True,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """Scales and quantized numbers.

    Args:
        src_tensor: (F, K) in HBM.
        return_fp8_dtype: "float8_e4m3fn" or "float8_e5m2".
        run_with_lnc2: two cores share F.
        enable_scale_packing: scales of four tiles of K are packed into 128 rows.

    Returns:
        scales, uint8, (ceil(K / 2048) * 128, F) or unpacked (K / 4, F), and data (K / 4, F * 4).
    """
    limits.generation("quantize_block_mxfp8_kernel", 4, "it has instructions for MX numbers")
    limits.dtype("src_tensor", src_tensor, (nl.bfloat16, nl.float16))
    limits.one_of("return_fp8_dtype", return_fp8_dtype, tuple(_DTYPES))
    limits.shape("src_tensor", src_tensor, ("F", "K"))
    features, depth = src_tensor.shape
    limits.multiple("K", depth, 128, "a quadrant of 32 rows has four numbers of K in each row")
    fits = not run_with_lnc2 or nl.num_programs(0) > 1
    limits.need(fits, "run_with_lnc2", "True on one core", "two cores share F", "launch quantize_block_mxfp8_kernel[2]")
    dtype = _DTYPES[return_fp8_dtype]
    rows = groups(depth) * TILE // PACK if enable_scale_packing else depth // PACK
    scales = streaming.result((rows, features), nl.uint8)
    data = streaming.result((depth // PACK, features * PACK), dtype)
    for columns in streaming.spans(features, _COLUMNS, shared=run_with_lnc2):
        kept, found = None, pieces(depth)
        for number, piece in enumerate(found):
            height = TILE // PACK if enable_scale_packing else piece.rows
            kept = streaming.filled((height, size(columns)), nl.uint8, 0) if kept is None else kept
            first = piece.scale_row if enable_scale_packing else 0
            packed = quantized(loaded(src_tensor, columns, piece), dtype, kept[first:, :])
            streaming.store(data[piece.data_rows, columns.start * PACK : columns.stop * PACK], packed.view(dtype))
            if not enable_scale_packing or piece.ends_group or number + 1 == len(found):
                place = slice(piece.group * height, (piece.group + 1) * height)
                streaming.store(scales[place if enable_scale_packing else piece.data_rows, columns], kept)
                kept = None
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=scales, cores=(0, 1))
        nisa.core_barrier(data=data, cores=(0, 1))
    return scales, data
