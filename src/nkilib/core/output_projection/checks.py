"""What both output projections refuse."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.utils.common_types import QuantizationType

FLOATS = (nl.float32, nl.float16, nl.bfloat16)
FLOAT8 = (nl.float8_e4m3, nl.float8_e4m3fn)


def check_projection(attention: Any, weight: Any, bias: Any, kind: QuantizationType, sizes: dict[str, int]) -> None:
    """Refuse tensors that do not fit together.

    Args:
        sizes: of `attention`, by name; that of H is added.
    """
    limits.between("D", sizes["D"], 1, nl.tile_size.pmax, "a head lies on the partitions")
    sizes["N * D"] = sizes["N"] * sizes["D"]
    limits.shape("weight", weight, ("N * D", "H"), sizes)
    limits.dtype("attention", attention, FLOATS)
    if kind is QuantizationType.NONE:
        limits.same_dtype(attention=attention, weight=weight)
    else:
        limits.dtype("weight", weight, FLOAT8)
    if bias is not None:
        limits.shape("bias", bias, (1, "H"), sizes)
        limits.dtype("bias", bias, FLOATS)


def checked_scale(kernel: str, name: str, scale: Any, wanted: bool, columns: int = 1) -> Any:
    """The scale, or None where nobody reads it; a missing one, and one of another shape, are refused.

    Args:
        wanted: whether the kind of quantization reads it.
        columns: that it has, beside 128 equal rows, or one row.
    """
    kept = limits.belonging(kernel, name, scale, wanted, "quantization_type")
    if kept is not None:
        rows = 1 if kept.shape[0] == 1 else nl.tile_size.pmax
        limits.shape(name, kept, (rows, columns))
    return kept
