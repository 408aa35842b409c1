"""Gradients of attention of a sequence that ranks share, in NumPy: tensors are lists with an array for each rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.experimental.attention.ring_attention_fwd_reference import rows, shared, visible


def ring_attention_spmd_bwd_reference(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    o_ref: Any,
    dy_ref: Any,
    lse_ref: Any,
    use_causal_mask: bool = False,
    mixed_precision: bool = True,
    softmax_scale: float | None = None,
    num_workers: int = 1,
    lnc_size: int = 1,
    replica_groups: Any = None,
    striped_attention: bool = False,
    bound_min: Any = None,
    bound_max: Any = None,
) -> list[Any]:
    """As `ring_attention_spmd_bwd` on every rank, in float64."""
    results: list[Any] = [None] * len(q_ref)
    for ring in replica_groups or [range(num_workers)]:
        above: list[list[Any]] = [[0.0] * len(ring), [0.0] * len(ring)]
        queries_of = {}
        for place, rank in enumerate(ring):
            q, o, dy = (rows(each[rank], False) for each in (q_ref, o_ref, dy_ref))
            k, v = (
                np.concatenate([shared(rows(each[other], False), q) for other in ring], axis=2)
                for each in (k_ref, v_ref)
            )
            count, scale = q.shape[2], softmax_scale or q.shape[3] ** -0.5
            sums = np.asarray(lse_ref[rank]).astype(np.float64).swapaxes(2, 3)
            lse = sums.reshape(*q.shape[:2], -1, 1)[:, :, :count]
            bounds = None if bound_min is None else (bound_min[rank], bound_max[rank])
            seen = visible(q, k, place, len(ring), use_causal_mask, striped_attention, bounds)
            weights = np.exp(np.where(seen, scale * q @ k.swapaxes(2, 3) - lse, -np.inf))
            change = scale * weights * (dy @ v.swapaxes(2, 3) - (dy * o).sum(axis=3, keepdims=True))
            queries_of[rank] = change @ k
            for total, made in zip(above, (change.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ dy), strict=True):
                for other, part in enumerate(np.split(made, len(ring), axis=2)):
                    total[other] = total[other] + part
        for place, rank in enumerate(ring):
            gradients = queries_of[rank], *(_summed(total[place], k_ref[rank].shape[1]) for total in above)
            results[rank] = tuple(each.swapaxes(2, 3).astype(np.float32) for each in gradients)
    return results


def _summed(made: Any, heads: int) -> Any:
    """Gradients of keys, over the heads of queries that share them."""
    return made.reshape(made.shape[0], heads, -1, *made.shape[2:]).sum(axis=2)
