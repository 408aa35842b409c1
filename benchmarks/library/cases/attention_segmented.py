"""Attention over a cache of blocks, as prefill in chunks with a prefix that is shared asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl
from nki.collectives import ReplicaGroup

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


def shared(heads: int, queries: int, segment: int, ranks: int, d: int = 128, in_turns: bool = False) -> Case:
    """A case of `attention_kv_parallel_segmented_cte` whose ranks have one segment each, which is what is timed."""
    return Case(
        kernel="attention_kv_parallel_segmented_cte",
        name=f"{'blocks in turns' if in_turns else 'in order'}, {heads} heads and {segment} keys of each of {ranks}, "
        f"{queries} queries, d {d}",
        arguments=_shared(heads, queries, segment, ranks, d, in_turns),
        flops=4 * heads * ranks * d * queries * segment,
        hbm_bytes=4 * d * (heads * queries + segment),
        ranks=ranks,
        tolerance=_STEP,
        small=_shared(heads, min(queries, 128), min(segment, 256), ranks, d, in_turns),
        official=False,
    )


def _shared(
    heads: int, queries: int, segment: int, ranks: int, d: int, in_turns: bool
) -> Callable[[Make], dict[str, Any]]:
    block = 32

    def arguments(make: Make) -> dict[str, Any]:
        prior = ranks * segment - queries

        def rank(rng: Any, shape: tuple[int, ...]) -> Any:
            return np.full(shape, rng.bit_generator.seed_seq.entropy)  # each rank has arrays of its own seed

        def offset(rng: Any, shape: tuple[int, ...]) -> Any:
            return np.full(shape, prior) if in_turns else prior - segment * rank(rng, shape)

        return {
            "q": make((heads, queries, d)),
            "k_cache": make((segment // block, 1, block, d)),
            "v_cache": make((segment // block, 1, block, d)),
            "block_tables": make(
                (1, segment // block), nl.int32, lambda rng, shape: np.arange(shape[1]).reshape(shape)
            ),
            "kvp_q_offset": make((1, 1), nl.int32, offset),
            "replica_groups": ReplicaGroup([list(range(ranks))]),
            "group_size": ranks,
            "block_size": block,
            "seg_size": segment,
            "scale": d**-0.5,
            "global_q_offset": prior,
            "tp_out": False,
            "sliding_window": 0,
            **({"kvp_rank_id": make((1, 1), nl.int32, rank), "kvp_group_size": ranks} if in_turns else {}),
        }

    return arguments


CASES = [
    segmented("causal", (8, 1), 512, 2048),
    segmented("causal", (4, 1), 2048, 4096),
    segmented("causal", (8, 1), 512, 2048, lnc=2),
    segmented("a window of 1,024", (8, 2), 512, 2048, d=64, sliding_window=1024),
    shared(2, 512, 2048, 4),
    shared(2, 512, 2048, 4, in_turns=True),
]
