"""Quantisation of hidden states to 8-bit floats."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def _static(rows: int, columns: int, lnc: int = 1) -> Case:
    def arguments(make: Make, rows: int = rows) -> dict[str, Any]:
        scale = make((128, 1), nl.float32, lambda rng, shape: np.full(shape, 0.02))
        return {"hidden_state": make((rows, columns)), "input_dequant_scale": scale, "dtype": nl.float8_e4m3}

    return Case(
        kernel="static_quantization",
        name=f"{rows:,} x {columns:,}",
        arguments=arguments,
        flops=0,
        hbm_bytes=3 * rows * columns,
        lnc=lnc,
        small=lambda make: arguments(make, 130),
        rounded=nl.float8_e4m3,
        official=False,
    )


def _rows(rows: int, columns: int, lnc: int = 1) -> Case:
    def arguments(make: Make, rows: int = rows) -> dict[str, Any]:
        return {"hidden_state": make((rows, columns)), "dtype": nl.float8_e4m3, "output_dtype": nl.float8_e4m3}

    return Case(
        kernel="row_quantization",
        name=f"{rows:,} x {columns:,}",
        arguments=arguments,
        flops=0,
        hbm_bytes=3 * rows * columns + 4 * rows,
        lnc=lnc,
        small=lambda make: arguments(make, 130),
        rounded=nl.float8_e4m3,
        official=False,
    )


CASES = [
    _static(4096, 4096),
    _static(4096, 4096, lnc=2),
    _rows(4096, 4096),
    _rows(4096, 4096, lnc=2),
    Case(
        kernel="pre_combine_dequant_scales",
        name="128 x 8",
        arguments=lambda make: {
            "input_dequant_scale": make((128, 1), nl.float32),
            "weight_dequant_scale": make((128, 8), nl.float32),
        },
        flops=128 * 8,
        hbm_bytes=4 * 128 * 17,
        official=False,
    ),
]
