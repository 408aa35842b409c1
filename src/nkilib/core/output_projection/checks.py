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


def check_scale(name: str, scale: Any, wanted: bool, columns: int = 1) -> None:
    """Refuse a scale that nobody reads, a missing one, and one of another shape.

    Args:
        wanted: whether the kind of quantization reads it.
        columns: that it has, beside 128 equal rows, or one row.
    """
    limits.need(
        (scale is not None) == wanted,
        name,
        "left out" if scale is None else f"{list(scale.shape)}, which nobody reads",
        f"{name} is given exactly if quantization_type needs it",
        f"pass {name}" if wanted else f"leave {name} out, or pass the quantization_type that needs it",
    )
    if scale is not None:
        rows = 1 if scale.shape[0] == 1 else nl.tile_size.pmax
        limits.shape(name, scale, (rows, columns))
