"""What `mla_sparse_attention_cte_kernel` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def mla_sparse_attention_cte_kernel_reference(
    q_lift_hbm: Any,
    q_pe_hbm: Any,
    c_kv_hbm: Any,
    k_pe_hbm: Any,
    topk_indices_hbm: Any,
    softmax_scale: float,
    topk_tiled: bool = False,
) -> Any:
    """Sums of latents in float64, each head's in the order of the next kernel."""
    lift, rotated, latents, keys = (
        np.asarray(each)[0].astype(np.float64) for each in (q_lift_hbm, q_pe_hbm, c_kv_hbm, k_pe_hbm)
    )
    queries, heads, count = lift.shape
    rows = np.asarray(topk_indices_hbm)
    chosen = rows.reshape(-1, 16 * rows.shape[3] if topk_tiled else rows.shape[2])[:queries]
    out = np.empty((queries, heads, 4, count // 4))
    for query in range(queries):
        values = latents[chosen[query]]
        scores = softmax_scale * (lift[query] @ values.T + rotated[query] @ keys[chosen[query]].T)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        sums = weights / weights.sum(-1, keepdims=True) @ values
        out[query] = sums.reshape(heads, count // 4, 4).transpose(0, 2, 1)
    return out.reshape(1, queries, heads * count)
