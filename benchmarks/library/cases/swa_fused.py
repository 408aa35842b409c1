"""A block of sliding-window attention of gpt-oss, on one of eight or of four ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl

_HIDDEN, _D, _WINDOW, _SLOTS = 2880, 64, 128, 128


def _block(new: int, queries: int, keys: int, lnc: int = 1) -> Case:
    wide = (queries + 2 * keys) * _D

    def arguments(make: Make, new: int = new) -> dict[str, Any]:
        blocks = 1 + -(-new // _SLOTS)
        whole = lambda value: lambda rng, shape: np.broadcast_to(value, shape)  # noqa: E731
        scaled = lambda count: lambda rng, shape: rng.standard_normal(shape) / np.sqrt(count)  # noqa: E731
        return {
            "hidden_states": make((1, new, _HIDDEN)),
            "qkv_weight": make((_HIDDEN, wide), fill=scaled(_HIDDEN)),
            "op_weight": make((queries * _D, _HIDDEN), fill=scaled(queries * _D / 16)),
            "k_cache": make((blocks, keys, _SLOTS, _D)),
            "v_cache": make((blocks, keys, _SLOTS, _D)),
            "block_tables": make((1, blocks), nl.int32, whole(np.arange(blocks)[::-1])),
            "cos_cache": make((1, new, _D), nl.float32, whole(0.6)),
            "sin_cache": make((1, new, _D), nl.float32, whole(0.8)),
            "sink": make((1, queries), nl.float32),
            "prior_tokens": make((1, 1), nl.int32, whole(100)),
            "qkv_bias": make((1, wide)),
            "op_bias": make((1, _HIDDEN)),
            "scale": _D**-0.5,
            "num_q_heads": queries,
            "num_kv_heads": keys,
        }

    projections = 2 * new * _HIDDEN * (wide + queries * _D)
    moved = 2 * new * _HIDDEN + _HIDDEN * (wide + queries * _D) + 2 * (new + _WINDOW) * keys * _D
    return Case(
        kernel="swa_fused_cte",
        name=f"gpt-oss, {new} tokens, {queries} heads on {keys} of keys",
        arguments=arguments,
        flops=projections + 4 * new * _WINDOW * queries * _D,
        hbm_bytes=2 * moved + 8 * new * _D,
        lnc=lnc,
        small=lambda make: arguments(make, 300),
        tolerance=6e-2,  # what is projected, rotated and attended to rounds to bfloat16 on the way
        official=False,
    )


CASES = [_block(1024, 8, 1), _block(2048, 16, 2), _block(2048, 16, 2, lnc=2)]
