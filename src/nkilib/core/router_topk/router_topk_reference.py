"""What `router_topk` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkilib.core.utils.common_types import RouterActFnType


def router_topk_reference(
    x: Any,
    w: Any,
    w_bias: Any,
    router_logits: Any,
    expert_affinities: Any,
    expert_index: Any,
    act_fn: RouterActFnType,
    k: int,
    x_hbm_layout: int,
    x_sb_layout: int,
    router_pre_norm: bool = True,
    norm_topk_prob: bool = False,
    use_column_tiling: bool = False,
    use_indirect_dma_scatter: bool = False,
    return_eager_affi: bool = False,
    use_PE_broadcast_w_bias: bool = False,
    shard_on_tokens: bool = False,
    skip_store_expert_index: bool = False,
    skip_store_router_logits: bool = False,
) -> list[Any]:
    """The results for x in HBM, in float64; those that are not stored are the arguments."""
    rows = np.asarray(x, np.float64)
    logits = (rows.T if x_hbm_layout == 0 else rows) @ np.asarray(w, np.float64)
    if w_bias is not None:
        logits = logits + np.asarray(w_bias, np.float64).reshape(-1)
    index = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    chosen = np.zeros(logits.shape, bool)
    np.put_along_axis(chosen, index, True, axis=1)
    counted = np.ones_like(chosen) if router_pre_norm and not norm_topk_prob else chosen
    softmax = act_fn == RouterActFnType.SOFTMAX
    values = np.exp(logits - logits.max(axis=1, keepdims=True)) if softmax else 1 / (1 + np.exp(-logits))
    affinities = np.where(counted, values, 0.0)
    if softmax or norm_topk_prob:
        affinities = affinities / affinities.sum(axis=1, keepdims=True)
    results = [
        router_logits if skip_store_router_logits else logits,
        expert_index if skip_store_expert_index else index,
        affinities,
    ]
    return [*results, np.take_along_axis(affinities, index, axis=1)] if return_eager_affi else results
