"""Attention for prefill: heads, sequences and options of models that are served, and of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def attention(
    name: str, heads: int, heads_kv: int, queries: int, keys: int, d: int, lnc: int = 1, **options: Any
) -> Case:
    """A case of `attention_cte`.

    Args:
        options: of the kernel; ``prior`` is a length of the prefix, of which all but 100 keys are used, ``rank`` and
            ``ranks`` say which part of the queries a rank has.
    """
    rank, ranks, prior = options.pop("rank", None), options.pop("ranks", 1), options.pop("prior", 0)
    causal, window = options.get("causal_mask", True), options.get("sliding_window", 0)
    position = np.arange(queries) + (0 if rank is None else rank * queries)
    seen = np.minimum(position + 1, keys) if causal else np.full(queries, keys)
    seen = np.minimum(seen, window) if window else seen + max(0, prior - 100)
    stored = 2 * heads_kv * d * (keys + prior) + 2 * heads * queries * d
    return Case(
        kernel="attention_cte",
        name=f"{name}, {heads} of {heads_kv} heads, {queries} x {keys}, d {d}",
        arguments=_arguments(heads, heads_kv, queries, keys, d, prior, rank, ranks, options),
        flops=4 * heads * d * int(seen.sum()),
        hbm_bytes=2 * stored,
        lnc=lnc,
        sizes={"queries": queries, "keys": keys, "d": d},
        small=_arguments(heads, heads_kv, min(queries, 640), min(keys, 640 * ranks), d, prior, rank, ranks, options),
        tiles=({"vector": 3}, {"vector": 4}, {"vector": 5}, {"ahead": 3}, {"ahead": 4}, {"ahead": 6}),
    )


def _arguments(
    heads: int, heads_kv: int, queries: int, keys: int, d: int, prior: int, rank: int | None, ranks: int, options: Any
) -> Callable[[Make], dict[str, Any]]:
    def arguments(make: Make) -> dict[str, Any]:
        scaled = lambda rng, shape: rng.standard_normal(shape) * d**-0.5  # noqa: E731
        given = {
            "q": make((heads, queries, d), fill=scaled),
            "k": make((heads_kv, d, keys)),
            "v": make((heads_kv, keys, d)),
            **options,
        }
        if prior:
            used = lambda rng, shape: np.full(shape, prior - 100)  # noqa: E731
            given["k_prior"], given["v_prior"] = make((heads_kv, d, prior)), make((heads_kv, prior, d))
            given["prior_used_len"] = make((1,), nl.int32, fill=used)
        if rank is not None:
            offset = lambda rng, shape: np.full(shape, rank * queries)  # noqa: E731
            given |= {"cp_offset": make((1, 1), nl.int32, fill=offset), "global_cp_deg": ranks}
        return given

    return arguments


CASES = [
    attention("causal", 1, 1, 2048, 2048, 128),
    attention("causal", 1, 1, 8192, 8192, 128),
    attention("causal", 8, 1, 2048, 2048, 128),
    attention("causal", 8, 2, 4096, 4096, 64),
    attention("all keys", 12, 12, 512, 512, 64, causal_mask=False),
    attention("a window of 1,024", 4, 1, 4096, 4096, 128, sliding_window=1024),
    attention("causal", 8, 1, 2048, 2048, 128, lnc=2),
    attention("causal", 1, 1, 8192, 8192, 128, lnc=2),
    attention("a prefix of 4,096", 4, 1, 1024, 1024, 128, prior=4096),
    attention("sums for training", 4, 4, 2048, 2048, 128, cache_softmax=True),
    attention("the second of four ranks", 4, 1, 2048, 8192, 128, rank=1, ranks=4),
    attention("causal, keys in sections", 1, 1, 16384, 16384, 128),
]
