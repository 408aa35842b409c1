"""Gradients of attention in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

_TILE = 128


def attention_bwd_reference(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    o_ref: Any,
    dy_ref: Any,
    lse_ref: Any,
    sinks_ref: Any = None,
    bound_min: Any = None,
    bound_max: Any = None,
    use_causal_mask: bool = False,
    mixed_precision: bool = False,
    softmax_scale: float | None = None,
    sliding_window: int | None = None,
) -> tuple[Any, ...]:
    """As `attention_bwd`, in float64."""
    batch, heads, width, count = q_ref.shape
    group = heads // k_ref.shape[1]
    q, o, dy = (np.asarray(each).astype(np.float64).swapaxes(2, 3) for each in (q_ref, o_ref, dy_ref))
    k, v = (np.repeat(np.asarray(each).astype(np.float64), group, axis=1) for each in (k_ref, v_ref))
    lse = np.asarray(lse_ref).astype(np.float64).swapaxes(2, 3).reshape(batch, heads, -1, 1)[:, :, :count]
    scale = softmax_scale or width**-0.5
    query, key = np.arange(count)[:, None], np.arange(k.shape[3])
    seen = np.ones((count, k.shape[3]), bool)
    if use_causal_mask:
        seen &= key <= query
    if sliding_window:
        seen &= key > query - sliding_window
    if bound_min is not None:
        seen &= (key >= np.asarray(bound_min)[:, None]) & (key < np.asarray(bound_max)[:, None])
    weights = np.exp(np.where(seen, scale * (q @ k) - lse, -np.inf))
    products = (dy * o).sum(axis=3, keepdims=True)
    change = weights * (dy @ v - products)
    results = [scale * change @ k.swapaxes(2, 3), _shared(scale * change.swapaxes(2, 3) @ q, group)]
    results.append(_shared(weights.swapaxes(2, 3) @ dy, group))
    gradients = [made.swapaxes(2, 3).astype(q_ref.dtype) for made in results]
    if sinks_ref is not None:
        sinks = np.asarray(sinks_ref).astype(np.float64).reshape(batch, heads, 1, -1)
        changes = -(np.exp(sinks - lse) * products).sum(axis=2)
        gradients.append(changes.reshape(sinks_ref.shape).astype(sinks_ref.dtype))
    return tuple(gradients)


def _shared(made: Any, group: int) -> Any:
    """Summed over the heads that share keys."""
    batch, heads = made.shape[:2]
    return made.reshape(batch, heads // group, group, *made.shape[2:]).sum(axis=2)
