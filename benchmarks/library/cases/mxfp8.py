"""MXFP8 of trn3: quantization, and products of what it gives."""

from __future__ import annotations

from benchmarks.library.case import Case

import nki.language as nl


def quantization(rows: int, depth: int, lnc: int = 1) -> Case:
    """A case of `quantize_block_mxfp8_kernel`."""
    return Case(
        kernel="quantize_block_mxfp8_kernel",
        name=f"{rows} x {depth}",
        arguments=lambda make: {
            "src_tensor": make((rows, depth)),
            "return_fp8_dtype": "float8_e4m3fn",
            "run_with_lnc2": lnc > 1,
        },
        flops=0,
        hbm_bytes=rows * depth * 3 + rows * depth // 32,
        lnc=lnc,
        target="trn3",
        official=False,
    )


def product(rows: int, depth: int, columns: int, lnc: int = 1, *, swizzled: bool = False) -> Case:
    """A case of `matmul_mxfp8`, which quantizes both operands."""

    def shape(features: int) -> tuple[int, int]:
        return (depth // 4, features * 4) if swizzled else (features, depth)

    return Case(
        kernel="matmul_mxfp8",
        name=f"{rows} x {depth} x {columns}{', swizzled' if swizzled else ''}",
        arguments=lambda make: {
            "lhs": make(shape(rows)),
            "rhs": make(shape(columns)),
            "lhs_is_swizzled": swizzled,
            "rhs_is_swizzled": swizzled,
            "float8_dtype": "float8_e4m3fn",
            "output_dtype": nl.float32,
        },
        flops=2 * rows * depth * columns,
        hbm_bytes=2 * (rows + columns) * depth + 4 * rows * columns,
        lnc=lnc,
        target="trn3",
        official=False,
        peak="mx",
    )


CASES = [
    quantization(2048, 4096),
    quantization(2048, 4096, lnc=2),
    product(1024, 4096, 2048),
    product(1024, 4096, 2048, lnc=2, swizzled=True),
]
