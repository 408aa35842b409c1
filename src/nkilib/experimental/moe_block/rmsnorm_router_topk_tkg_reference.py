"""RMS norm and router in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.language as nl
from nkilib.core.router_topk.router_topk_reference import router_topk_reference
from nkilib.core.utils.common_types import QuantizationType, RouterActFnType

Array = np.ndarray[Any, Any]


def rmsnorm_router_topk_tkg_reference(
    hidden_states: Array,
    gamma: Array,
    router_weights: Array,
    router_bias: Array | None = None,
    eps: float = 1e-6,
    top_k: int = 1,
    hidden_actual: int | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    router_mm_dtype: Any = nl.bfloat16,
    router_act_fn: RouterActFnType = RouterActFnType.SIGMOID,
) -> tuple[Array, Array, Array]:
    """Normalised tokens in `router_mm_dtype`, indices in int32, and affinities in float64."""
    x = hidden_states.reshape(-1, hidden_states.shape[-1]).astype(np.float64)
    mean = np.square(x).sum(-1, keepdims=True) / (hidden_actual or x.shape[1])
    normal = (x / np.sqrt(mean + eps) * gamma.astype(np.float64)).astype(router_mm_dtype.numpy)
    weights = router_weights.astype(router_mm_dtype.numpy)
    _, index, affinities = router_topk_reference(
        normal, weights, router_bias, None, None, None, router_act_fn, top_k, 1, 0, router_pre_norm=False
    )
    return normal, index.astype(np.int32), affinities
