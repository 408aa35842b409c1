"""RMS norm with quantisation: of Llama 3 in two sizes, with a sum before, and with a known scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.rmsnorm.rmsnorm_quant import RmsNormQuantKernelArgs
from nkilib.core.utils.common_types import NormType, QuantizationType


def _case(tokens: int, columns: int, lnc: int = 1, options: str = "", **of_kargs: Any) -> Case:
    kargs = RmsNormQuantKernelArgs(**of_kargs)

    def arguments(make: Make) -> dict[str, Any]:
        shape = (1, tokens, columns)
        given = {"hidden": make(shape), "ln_w": make((columns,)), "kargs": kargs}
        if kargs.is_static_quant():
            given["input_dequant_scale"] = make((128, 1), nl.float32, lambda rng, shape: np.full(shape, 0.02))
        if options == "residual":
            given["residual"] = make(shape)
        return given

    # 2 bytes are read for each element and 1 is written; with a residual 2 more are read and 2 written
    moved = tokens * columns * (7 if options else 3)
    kind = kargs.quantization_type.name + ("" if kargs.needs_rms_normalization() else ", no norm")
    name = f"{tokens} x {columns}, {kind}" + (f", {options}" if options else "")
    meaning = {"rounded": nl.float8_e4m3, "meaning": _numbers if kargs.is_row_quant() else None}
    return Case("rmsnorm_quant_kernel", name, arguments, 0, moved, lnc, official=not options, **meaning)


def _numbers(result: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What quantised rows mean: their numbers times the scale behind them."""
    if result.dtype.itemsize > 1:
        return result
    scale = np.ascontiguousarray(result[..., -4:]).view(np.float32)
    return result[..., :-4].astype(np.float64) * scale


CASES = [
    _case(2048, 8192),
    _case(2048, 16384),
    _case(1024, 2048),
    _case(2048, 8192, quantization_type=QuantizationType.STATIC),
    _case(2048, 8192, norm_type=NormType.NO_NORM, lower_bound=3.0),
    _case(2048, 8192, options="residual"),
    _case(2048, 8192, lnc=2),
]
