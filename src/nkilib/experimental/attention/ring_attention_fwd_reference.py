"""Attention of a sequence that ranks share, in NumPy: arguments are lists with an array for each rank."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.language as nl

_TILE = 128


def ring_attention_spmd_fwd_reference(
    q: Any,
    k: Any,
    v: Any,
    replica_groups: Any = None,
    num_workers: int = 1,
    softmax_scale: float | None = None,
    use_causal_mask: bool = False,
    striped_input: bool = False,
    training: bool = False,
    lse_dtype: Any = nl.float32,
    tp_q: bool = False,
    tp_k: bool = False,
    bound_min: Any = None,
    bound_max: Any = None,
) -> list[Any]:
    """As `ring_attention_spmd_fwd` on every rank, in float64."""
    results: list[Any] = [None] * len(q)
    for ring in replica_groups or [range(num_workers)]:
        for place, rank in enumerate(ring):
            queries = rows(q[rank], tp_q)
            keys, values = (
                np.concatenate([shared(rows(each[other], by_row), queries) for other in ring], axis=2)
                for each, by_row in ((k, tp_k), (v, True))
            )
            bounds = None if bound_min is None else (bound_min[rank], bound_max[rank])
            seen = visible(queries, keys, place, len(ring), use_causal_mask, striped_input, bounds)
            scale = softmax_scale or queries.shape[3] ** -0.5
            scores = np.where(seen, scale * queries @ keys.swapaxes(2, 3), -np.inf)
            largest = np.maximum(scores.max(axis=3, keepdims=True), -1e30)
            sums = np.exp(scores - largest).sum(axis=3, keepdims=True)
            lse = np.where(sums > 0, largest + np.log(np.maximum(sums, 1e-300)), 0)
            out = (np.exp(scores - lse) @ values).astype(q[rank].dtype)
            results[rank] = (out, by_tiles(lse[:, :, :, 0]).astype(lse_dtype.numpy)) if training else out
    return results


def rows(array: Any, by_row: bool) -> Any:
    """``(batch, heads, places, d)`` in float64."""
    wide = np.asarray(array).astype(np.float64)
    return wide if by_row else wide.swapaxes(2, 3)


def shared(keys: Any, queries: Any) -> Any:
    """Keys for each head of queries."""
    return np.repeat(keys, queries.shape[1] // keys.shape[1], axis=1)


def visible(queries: Any, keys: Any, place: int, ranks: int, causal: bool, striped: bool, bounds: Any) -> Any:
    """Whether a query of a rank sees a key of all ranks, ``(batch or 1, heads or 1, queries, keys)``."""
    batch, heads, count, _ = queries.shape
    each = keys.shape[2] // ranks
    own, number = np.arange(count)[:, None], np.tile(np.arange(each), ranks)
    other = np.repeat(np.arange(ranks), each)
    seen = np.ones((1, 1, count, ranks * each), bool)
    if causal and striped:
        seen = seen & (number * ranks + other <= own * ranks + place)
    elif causal:
        seen = seen & (other * each + number <= place * count + own)
    if bounds is not None:
        first, stop = (np.asarray(bound).reshape(-1, count, 1) for bound in bounds)
        inside = (number >= first) & (number < stop)
        seen = seen & (inside.reshape(batch, heads, count, -1) if len(inside) > 1 else inside)
    return seen


def by_tiles(numbers: Any) -> Any:
    """``(batch, heads, queries)`` as ``(batch, heads, 128, tiles)``, 0 after the last query."""
    batch, heads, count = numbers.shape
    padded = np.zeros((batch, heads, -(-count // _TILE) * _TILE))
    padded[:, :, :count] = numbers
    return padded.reshape(batch, heads, -1, _TILE).swapaxes(2, 3)
