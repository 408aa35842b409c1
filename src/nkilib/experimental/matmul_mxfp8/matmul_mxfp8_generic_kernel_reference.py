"""What `matmul_mxfp8` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.experimental.quantize_mxfp8.quantize_mxfp8_reference import quantize_block_mxfp8_kernel_reference


def matmul_mxfp8_reference(
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
    output_dtype: Any = None,
    run_with_lnc2: bool = True,
    lnc_2_shard_rhs: bool | None = None,
    lhs_scales: Any = None,
    rhs_scales: Any = None,
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
) -> Any:
    """The product of the quantized operands in float64."""
    sides = ((lhs, lhs_scales, lhs_is_swizzled), (rhs, rhs_scales, rhs_is_swizzled))
    left, right = (_numbers(*side, float8_dtype) for side in sides)
    return left @ right.T


def _numbers(operand: Any, scales: Any, swizzled: bool, dtype: str) -> Any:
    """What an operand stands for, (F, K) in float64, in the order of its swizzled rows."""
    data, found = operand if isinstance(operand, (tuple, list)) else (operand, scales)
    if found is None:
        matrix = _unswizzled(np.asarray(data)) if swizzled else np.asarray(data)
        found, data = quantize_block_mxfp8_kernel_reference(matrix, dtype)
    values, found = np.asarray(data).astype(np.float64), np.asarray(found).view(np.uint8)
    rows, columns = values.shape
    exponents = np.zeros((rows, columns // 4))
    for row in range(rows):
        exponents[row] = found[_scale_row(row, rows, len(found))]
    wide = values.reshape(rows, columns // 4, 4) * 2.0 ** (exponents[:, :, None] - 127)
    return wide.transpose(1, 0, 2).reshape(columns // 4, rows * 4)


def _scale_row(row: int, rows: int, scale_rows: int) -> int:
    """The row of scales that belongs to a row of data."""
    tile, inside = divmod(row, 128)
    if scale_rows != -(-rows // 512) * 128:  # not packed: scales lie in the quadrants of a piece's own data
        return row // 32 * 32 + row % 32 // 8
    return tile // 4 * 128 + inside // 32 * 32 + tile % 4 * 4 + inside % 32 // 8


def _unswizzled(data: Any) -> Any:
    """(F, K) of (K / 4, F * 4)."""
    rows, columns = data.shape
    wide, found, first = data.reshape(rows, columns // 4, 4), [], 0
    while first < rows:
        height = next(size for size in (128, 64, 32) if size <= rows - first)
        found.append(wide[first : first + height].transpose(1, 2, 0).reshape(columns // 4, height * 4))
        first += height
    return np.concatenate(found, axis=1)
