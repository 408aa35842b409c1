"""Projections to queries, keys and values: prefill and decoding steps of known models, or of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nkilib.core.utils.common_types import NormType, QKVOutputLayout, QuantizationType

_SCALE = 1 / 32
_SPREAD = 16  # tokens that are normalised in float32


def projected(
    batch: int,
    length: int,
    width: int,
    heads: tuple[int, int, int],
    norm: NormType,
    kind: QuantizationType,
    layout: QKVOutputLayout,
    rope: bool,
    residual: bool,
) -> Callable[[Make], dict[str, Any]]:
    """Arguments of `qkv`; heads are queries, keys and the size of a head."""

    def arguments(make: Make) -> dict[str, Any]:
        queries, keys, head = heads
        plain, columns = kind is QuantizationType.NONE, (queries + 2 * keys) * head
        small = lambda rng, shape: rng.standard_normal(shape) / np.sqrt(width)  # noqa: E731
        same = lambda rng, shape: np.full(shape, _SCALE)  # noqa: E731
        near_one = lambda rng, shape: 1 + rng.standard_normal(shape) / 8  # noqa: E731
        angle = lambda rng, shape: np.cos(rng.uniform(0, 6, shape))  # noqa: E731
        found: dict[str, Any] = {
            "input": make((batch, length, width)),
            "fused_qkv_weights": make((width, columns), fill=small)
            if plain
            else make((width, columns), nl.float8_e4m3),
            "output_layout": layout,
            "quantization_type": kind,
            "fused_norm_type": norm,
            "d_head": head,
            "num_q_heads": queries,
            "num_kv_heads": keys,
        }
        if norm in (NormType.RMS_NORM, NormType.LAYER_NORM):
            found["gamma_norm_weights"] = make((1, width), fill=near_one)
        if kind is QuantizationType.ROW:
            found["qkv_w_scale"] = make((128, columns), nl.float32, same)
        if kind is QuantizationType.STATIC:
            found |= {"qkv_w_scale": make((128, 3), nl.float32, same), "qkv_in_scale": make((128, 1), nl.float32, same)}
        if rope:
            turns = {name: make((batch, length, head), fill=angle) for name in ("cos_cache", "sin_cache")}
            found |= {"fused_rope": True, **turns}
        if residual:
            added = {name: make((batch, length, width)) for name in ("mlp_prev", "attention_prev")}
            found |= {"fused_residual_add": True, **added}
        return found

    return arguments


def case(
    name: str,
    shape: tuple[int, int, int],
    heads: tuple[int, int, int],
    norm: NormType = NormType.RMS_NORM,
    kind: QuantizationType = QuantizationType.NONE,
    *,
    layout: QKVOutputLayout = QKVOutputLayout.BSD,
    rope: bool = False,
    residual: bool = False,
    lnc: int = 1,
    official: bool = True,
) -> Case:
    """A case with an input of some shape; the error is measured with fewer tokens and features."""
    batch, length, width = shape
    columns, tokens, plain = (heads[0] + 2 * heads[1]) * heads[2], batch * length, kind is QuantizationType.NONE
    options = (heads, norm, kind, layout, rope, residual)
    weights = (2 if plain else 1) * width * columns
    return Case(
        "qkv",
        f"{name}: {batch} x {length} tokens, H {width}, heads {heads[0]} + 2 x {heads[1]} of {heads[2]}",
        projected(batch, length, width, *options),
        flops=2 * tokens * width * columns,
        hbm_bytes=weights + 2 * tokens * (width * (3 if residual else 1) + columns),
        lnc=lnc,
        small=projected(batch, min(length, 130 if batch == 1 else 60), 512, *options),
        official=official,
        peak="fp8" if kind is QuantizationType.STATIC else "bf16",
        # rows that bfloat16 rounds before float8 does may move by a unit in the last place of float8
        rounded=nl.float8_e4m3 if kind is QuantizationType.STATIC and tokens > _SPREAD else None,
    )


_EIGHTH = (8, 1, 128)

CASES = [
    case("Llama 3 8B, rotated", (1, 2048, 4096), (32, 8, 128), rope=True, official=False),
    case("Llama 3 70B, an eighth, rotated", (1, 2048, 8192), _EIGHTH, rope=True),
    case("Llama 3 70B, an eighth, rotated", (1, 2048, 8192), _EIGHTH, rope=True, lnc=2),
    case("Llama 3 70B, an eighth", (1, 2048, 8192), _EIGHTH),
    case("residual, by head", (1, 1024, 8192), _EIGHTH, rope=True, residual=True, layout=QKVOutputLayout.NBSd),
    case("layer norm", (4, 512, 4096), (8, 8, 64), NormType.LAYER_NORM),
    case("float8, static", (1, 1024, 8192), _EIGHTH, kind=QuantizationType.STATIC),
    case("Llama 3 8B", (4, 1, 4096), (32, 8, 128)),
    case("Llama 3 8B, residual", (4, 1, 4096), (32, 8, 128), residual=True),
    case("Llama 3 70B, an eighth", (4, 1, 8192), _EIGHTH),
    case("Llama 3 70B, an eighth", (4, 1, 8192), _EIGHTH, lnc=2),
    case("Llama 3 70B, an eighth", (64, 1, 8192), _EIGHTH),
    case("Llama 3 70B, one head", (1, 4, 8192), (1, 1, 128)),
    case("float8, rows", (8, 1, 8192), _EIGHTH, kind=QuantizationType.ROW),
    case("float8, static", (8, 1, 8192), _EIGHTH, kind=QuantizationType.STATIC),
]
