"""Output projections: from the heads of attention back to hidden states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.utils.common_types import QuantizationType

_SCALE = 1 / 32


def projected(batch: int, heads: int, head: int, sequence: int, hidden: int, bias: bool, static: bool) -> Any:
    """Arguments of `output_projection_cte`."""

    def arguments(make: Make) -> dict[str, Any]:
        found: dict[str, Any] = {"attention": make((batch, heads, head, sequence))}
        found["weight"] = make((heads * head, hidden), nl.float8_e4m3 if static else nl.bfloat16)
        found["bias"] = make((1, hidden)) if bias else None
        if static:
            same = lambda rng, shape: np.full(shape, _SCALE)  # noqa: E731
            found |= {"quantization_type": QuantizationType.STATIC}
            found |= {name: make((128, 1), nl.float32, same) for name in ("input_scales", "weight_scales")}
        return found

    return arguments


def cte(
    name: str, batch: int, heads: int, sequence: int, hidden: int, *, head: int = 128, lnc: int = 1, **options: bool
) -> Case:
    """A case of `output_projection_cte`."""
    bias, static = options.get("bias", False), options.get("static", False)
    depth, rows = heads * head, batch * sequence
    small: Callable[[Make], dict[str, Any]] = projected(batch, heads, head, min(sequence, 130), 640, bias, static)
    return Case(
        "output_projection_cte",
        f"{name}: {batch} x {sequence} tokens, {heads} heads of {head}, H {hidden}",
        projected(batch, heads, head, sequence, hidden, bias, static),
        flops=2 * rows * depth * hidden,
        hbm_bytes=2 * rows * (depth + hidden) + (1 if static else 2) * depth * hidden,
        lnc=lnc,
        small=small,
        peak="fp8" if static else "bf16",
    )


def few(batch: int, heads: int, head: int, length: int, hidden: int, kind: QuantizationType, **options: Any) -> Any:
    """Arguments of `output_projection_tkg`."""

    def arguments(make: Make) -> dict[str, Any]:
        plain = kind is QuantizationType.NONE
        found: dict[str, Any] = {"attention": make((head, batch, heads, length))}
        found["weight"] = make((heads * head, hidden), nl.bfloat16 if plain else nl.float8_e4m3)
        found |= {"bias": make((1, hidden)), "quantization_type": kind, **options}
        same = lambda rng, shape: np.full(shape, _SCALE)  # noqa: E731
        if not plain:
            static = kind is QuantizationType.STATIC
            found["weight_scale"] = make((128, 1 if static else hidden), nl.float32, same)
            found["input_scale"] = make((128, 1), nl.float32, same) if static else None
        return found

    return arguments


def tkg(
    name: str,
    batch: int,
    heads: int,
    hidden: int,
    kind: QuantizationType = QuantizationType.NONE,
    *,
    head: int = 128,
    length: int = 1,
    lnc: int = 1,
    **options: Any,
) -> Case:
    """A case of `output_projection_tkg`."""
    depth, rows, plain = heads * head, batch * length, kind is QuantizationType.NONE
    return Case(
        "output_projection_tkg",
        f"{name}: {batch} x {length} tokens, {heads} heads of {head}, H {hidden}",
        few(batch, heads, head, length, hidden, kind, **options),
        flops=2 * rows * depth * hidden,
        hbm_bytes=2 * rows * (depth + hidden) + (2 if plain else 1) * depth * hidden + 2 * hidden,
        lnc=lnc,
        small=few(batch, heads, head, length, 1024, kind, **options) if lnc == 1 else None,
        peak="fp8" if kind is QuantizationType.STATIC else "bf16",
    )


CASES = [
    cte("Llama 3 70B, an eighth", 1, 8, 1024, 8192),
    cte("Llama 3 70B, an eighth", 1, 8, 1024, 8192, lnc=2),
    cte("Llama 3 70B, one head", 1, 1, 4096, 8192),
    cte("heads of 64, bias", 1, 16, 2048, 3072, head=64, bias=True),
    cte("batch of 4", 4, 4, 256, 7168),
    cte("float8, static", 1, 8, 1024, 8192, static=True),
    tkg("Llama 3 8B", 4, 32, 4096),
    tkg("Llama 3 70B, an eighth", 4, 8, 8192),
    tkg("Llama 3 70B, an eighth", 4, 8, 8192, lnc=2),
    tkg("heads of 64", 4, 8, 3072, head=64, length=4),
    tkg("transposed", 16, 8, 8192, TRANSPOSE_OUT=True),
    tkg("float8, static", 16, 8, 8192, QuantizationType.STATIC),
    tkg("float8, rows, transposed", 64, 8, 8192, QuantizationType.ROW, TRANSPOSE_OUT=True),
]
