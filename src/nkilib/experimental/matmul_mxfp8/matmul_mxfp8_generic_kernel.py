"""Product of two matrices in MXFP8: 8-bit numbers with an 8-bit exponent for every 32 of them (trn3).

Math: ``out = lhs @ rhs.T`` for lhs (M, K) and rhs (N, K), both quantized as `quantize_mxfp8` says; products and sums in
float32.

Layouts: each operand is (F, K) in 16 bits; swizzled (K / 4, F * 4) in 16 bits; or quantized, (K / 4, F * 4) or packed
(K / 4, F), with scales. The result is (M, N).

Limits: K a multiple of 128, M even, NeuronCore-v4.

Engines: Tensor multiplies four numbers of K in each row at once; DMA loads, and swizzles what is not yet, and Vector
quantizes. The left operand stays in SBUF, and strips of 512 rows of the right one pass by it. Two cores share N, or M.
Source: matmul-mxfp8-generic-kernel.rst of the published library.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.matmul_mxfp8.operand import Operand, checked
from nkilib.experimental.quantize_mxfp8.swizzle import pieces
from nkilib.streaming import sbuf, size

_ROOM = 64 * 1024
"""Bytes of a partition that the left operand may take."""

_DTYPES = {"float8_e4m3fn": nl.float8_e4m3fn, "float8_e5m2": nl.float8_e5m2}


@nki.jit
def matmul_mxfp8(
    lhs: Any,
    rhs: Any,
    TILES_IN_BLOCK_M: int | None = None,
    TILES_IN_BLOCK_N: int | None = None,
    TILES_IN_BLOCK_K: int | None = None,
    TILES_IN_LOAD_M: int | None = None,
    TILES_IN_LOAD_N: int | None = None,
    lhs_matmul_tile_shape_logical: tuple[int, int] | None = None,
    rhs_matmul_tile_shape_logical: tuple[int, int] | None = None,
    block_loop_order: str = "mnk",
    tile_loop_order: str = "mnk",
    float8_dtype: str = "float8_e5m2",
    output_dtype: Any = nl.bfloat16,
    run_with_lnc2: bool = True,
    lnc_2_shard_rhs: bool | None = None,
    lhs_scales: nl.NkiTensor | None = None,
    rhs_scales: nl.NkiTensor | None = None,
    use_scale_packing: bool = False,
    spill_reload: bool = False,
    lhs_is_swizzled: bool = True,
    rhs_is_swizzled: bool = True,
    load_with_PE_swizzle: bool = False,
    lhs_is_f_by_k: bool = True,
    rhs_is_f_by_k: bool = True,
    fast_dma_transpose: bool = False,
    enable_psum_copy_in: Any = None,
    quant_scheme: str = "wrapX",
) -> nl.NkiTensor:
    """``lhs @ rhs.T``.

    Args:
        lhs: (M, K), swizzled (K / 4, M * 4), or quantized, which is a tuple of data and scales too.
        rhs: (N, K) likewise.
        float8_dtype: "float8_e4m3fn" or "float8_e5m2", to which operands are quantized.
        output_dtype: of the result.
        run_with_lnc2: the cores of the launch share the work; otherwise the first one does it.
        lnc_2_shard_rhs: they share N; with False M.
        lhs_scales, rhs_scales: of operands that are quantized already.
        use_scale_packing: refuse scales of quantized operands that are not packed.
        lhs_is_swizzled, rhs_is_swizzled: of operands that are not quantized: (K / 4, F * 4), and not (F, K).
        TILES_IN_BLOCK_M, TILES_IN_BLOCK_N, TILES_IN_BLOCK_K, TILES_IN_LOAD_M, TILES_IN_LOAD_N,
            lhs_matmul_tile_shape_logical, rhs_matmul_tile_shape_logical, block_loop_order, tile_loop_order,
            spill_reload, load_with_PE_swizzle, lhs_is_f_by_k, rhs_is_f_by_k, fast_dma_transpose, enable_psum_copy_in,
            quant_scheme: not built but for their defaults.

    Returns:
        (M, N) in HBM.
    """
    limits.generation("matmul_mxfp8", 4, "it has instructions for MX numbers")
    plan = {
        "TILES_IN_BLOCK_M": TILES_IN_BLOCK_M,
        "TILES_IN_BLOCK_N": TILES_IN_BLOCK_N,
        "TILES_IN_BLOCK_K": TILES_IN_BLOCK_K,
        "TILES_IN_LOAD_M": TILES_IN_LOAD_M,
        "TILES_IN_LOAD_N": TILES_IN_LOAD_N,
        "lhs_matmul_tile_shape_logical": lhs_matmul_tile_shape_logical,
        "rhs_matmul_tile_shape_logical": rhs_matmul_tile_shape_logical,
        "block_loop_order": None if block_loop_order == "mnk" else block_loop_order,
        "tile_loop_order": None if tile_loop_order == "mnk" else tile_loop_order,
        "spill_reload": spill_reload or None,
        "load_with_PE_swizzle": load_with_PE_swizzle or None,
        "fast_dma_transpose": fast_dma_transpose or None,
        "enable_psum_copy_in": enable_psum_copy_in,
        "quant_scheme": None if quant_scheme == "wrapX" else quant_scheme,
    }
    limits.not_built(plan, "matmul_mxfp8")
    limits.one_of("float8_dtype", float8_dtype, tuple(_DTYPES))
    dtype = _DTYPES[float8_dtype]
    left = checked("lhs", lhs, lhs_scales, lhs_is_swizzled, lhs_is_f_by_k, dtype)
    right = checked("rhs", rhs, rhs_scales, rhs_is_swizzled, rhs_is_f_by_k, dtype)
    _check(left, right, use_scale_packing)
    out = streaming.result((left.features, right.features), output_dtype)
    by_columns = lnc_2_shard_rhs is None or lnc_2_shard_rhs
    if run_with_lnc2 or nl.program_id(0) == 0:
        _multiply(left, right, out, run_with_lnc2 and not by_columns, run_with_lnc2 and by_columns)
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


def _check(left: Operand, right: Operand, packing: bool) -> None:
    limits.need(
        left.depth == right.depth,
        "K of rhs",
        right.depth,
        f"both operands have one K, lhs has {left.depth}",
        "pass operands of one K",
    )
    limits.multiple("M", left.features, 2, "the Tensor engine holds an even number of rows")
    for name, operand in (("lhs", left), ("rhs", right)):
        good = not packing or operand.scales is None or operand.packed_scales
        limits.need(good, f"{name}_scales", "not packed", "use_scale_packing asks for it", "pack scales of four tiles")


def _multiply(left: Operand, right: Operand, out: Any, share_rows: bool, share_columns: bool) -> None:
    """All of the product that falls to this core, block by block of the left operand."""
    found, pmax = pieces(left.depth), nl.tile_size.pmax
    most = max(pmax, _ROOM // (5 * len(found)) // pmax * pmax)
    if share_rows:
        most = min(most, pmax * max(1, streaming.ceil_div(left.features, pmax) // 2))
    for block in streaming.spans(left.features, most, shared=share_rows):
        stationary = [left.piece(block, piece) for piece in found]
        for columns in streaming.spans(right.features, nl.tile_size.psum_bank_fmax, shared=share_columns):
            moving = [right.piece(columns, piece) for piece in found]
            for rows in streaming.spans(size(block), pmax):
                here = slice(block.start + rows.start, block.start + rows.stop)
                tile = _product([(a[:, rows], b[:, rows]) for a, b in stationary], moving, out.dtype)
                streaming.store(out[here, columns], tile)


def _product(left: list[tuple[Any, Any]], right: list[tuple[Any, Any]], dtype: Any) -> Any:
    """(rows, columns) in SBUF: the sum over all pieces of K."""
    rows, columns = left[0][0].shape[1], right[0][0].shape[1]
    total, tile = streaming.psum((rows, columns)), sbuf((rows, columns), dtype)
    for place, ((a, a_scales), (b, b_scales)) in enumerate(zip(left, right, strict=True)):
        nisa.nc_matmul_mx(
            dst=total,
            stationary=a,
            moving=b,
            stationary_scale=a_scales,
            moving_scale=b_scales,
            accumulate=place > 0,
        )
    nisa.tensor_copy(dst=tile, src=total)
    return tile
