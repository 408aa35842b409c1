"""Attention over a cache of blocks, as prefill in chunks with a prefix that is shared asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl

_STEP = 0.15
"""Steps of bfloat16 at the largest results, as a part of the root mean square: queries that see few keys have them."""


def segmented(
    name: str, heads: tuple[int, int], queries: int, segment: int, d: int = 128, lnc: int = 1, **options: Any
) -> Case:
    """A case of `attention_segmented_cte` with one segment of prefix, which is what is timed."""
    h, h_kv = heads
    window = options.get("sliding_window") or queries + segment
    position = segment + np.arange(queries)
    seen = int(np.minimum(position + 1, window).sum())
    return Case(
        kernel="attention_segmented_cte",
        name=f"{name}, {h} of {h_kv} heads, {queries} after {segment}, d {d}",
        arguments=_arguments(heads, queries, segment, d, options),
        flops=4 * h * d * seen,
        hbm_bytes=4 * d * (h * queries + h_kv * (queries + segment)),
        lnc=lnc,
        tolerance=_STEP,
        small=_arguments((min(h, 2), 1), min(queries, 256), min(segment, 512), d, options),
        official=False,
    )


def _arguments(
    heads: tuple[int, int], queries: int, segment: int, d: int, options: dict[str, Any]
) -> Callable[[Make], dict[str, Any]]:
    h, h_kv = heads
    block = 32
    blocks = (segment + queries) // block

    def arguments(make: Make) -> dict[str, Any]:
        return {
            "q": make((h, queries, d)),
            "k_cache": make((blocks, h_kv, block, d)),
            "v_cache": make((blocks, h_kv, block, d)),
            "block_tables": make((1, blocks), nl.int32, lambda rng, shape: rng.permutation(blocks).reshape(shape)),
            "prior_tokens": make((1, 1), nl.int32, lambda rng, shape: np.full(shape, segment)),
            "block_size": block,
            "prior_seg_size": segment,
            "scale": d**-0.5,
            "num_q_heads": h,
            **options,
        }

    return arguments


CASES = [
    segmented("causal", (8, 1), 512, 2048),
    segmented("causal", (4, 1), 2048, 4096),
    segmented("causal", (8, 1), 512, 2048, lnc=2),
    segmented("a window of 1,024", (8, 2), 512, 2048, d=64, sliding_window=1024),
]
