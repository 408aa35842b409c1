"""Attention for prefill in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.language as nl

_TILE = 128
_COLUMNS = 512
_LEAST = 2.0**-126  # sum of the weights of a query that sees no key


def attention_cte_reference(
    q: Any,
    k: Any,
    v: Any,
    scale: float = 1.0,
    causal_mask: bool = True,
    k_prior: Any = None,
    v_prior: Any = None,
    prior_used_len: Any = None,
    sink: Any = None,
    sliding_window: int | None = None,
    tp_q: bool = True,
    tp_k: bool = False,
    tp_out: bool = False,
    cache_softmax: bool = False,
    softmax_dtype: Any = nl.float32,
    mm_out_dtype: Any = nl.float32,
    cp_offset: Any = None,
    global_cp_deg: int | None = None,
    cp_strided_q_slicing: bool = False,
    bound_min: Any = None,
    bound_max: Any = None,
    cp_striped_input: bool = False,
    skip_output_normalization: bool = False,
    position_bias: Any = None,
    bias_layout: str = "dense",
    bias_band_params: dict[str, int] | None = None,
) -> Any:
    """As `attention_cte`, in float64."""
    queries = _wide(q) if tp_q else _wide(q).swapaxes(1, 2)
    batch, count, _ = queries.shape
    used = _number(prior_used_len)
    keys, values, columns = _rows(k, tp_k), _wide(v), np.arange(v.shape[1])
    place = np.arange(-used, len(columns))  # of keys, as positions of queries count
    if k_prior is not None:
        keys = np.concatenate([_rows(k_prior, tp_k)[:, :used], keys], axis=1)
        values = np.concatenate([_wide(v_prior)[:, :used], values], axis=1)
        columns = np.concatenate([np.arange(used), columns + -(-v_prior.shape[1] // _COLUMNS) * _COLUMNS])
    group = batch // keys.shape[0]
    scores = queries @ np.repeat(keys, group, axis=0).swapaxes(1, 2)
    if position_bias is not None:
        scores = scores + _wide(position_bias)[:, :, columns]
    position = np.arange(count) * (global_cp_deg if cp_strided_q_slicing else 1) + _number(cp_offset)
    seen = _seen(position[:, None], place, causal_mask, sliding_window, (bound_min, bound_max))
    scores = np.where(seen, scale * scores, -np.inf)
    sinks = np.full((batch, 1, 1), -np.inf) if sink is None else _wide(sink)[:, :, None]
    largest = np.maximum(scores.max(axis=2, keepdims=True), sinks)
    largest = np.where(largest == -np.inf, -1e30 * scale, largest)
    weights = np.exp(scores - largest)
    sums = np.maximum(weights.sum(axis=2, keepdims=True) + np.exp(sinks - largest), _LEAST)
    out = weights @ np.repeat(values, group, axis=0)
    out = (out if skip_output_normalization else out / sums).astype(q.dtype)
    out = out.swapaxes(1, 2) if tp_out else out
    if not cache_softmax:
        return out
    last = sums if skip_output_normalization else 1.0 / sums
    return out, _by_tiles(-largest, softmax_dtype), _by_tiles(last, softmax_dtype)


def _seen(position: Any, place: Any, causal: bool, window: int | None, bounds: tuple[Any, Any]) -> Any:
    """Whether a query sees a key, (1 or batch, queries, keys)."""
    seen = np.ones((1, len(position), len(place)), bool)
    if causal:
        seen &= place <= position
    if window:
        seen &= place > position - window
    if bounds[0] is not None:
        first, stop = (np.asarray(bound).reshape(-1, len(position), 1) for bound in bounds)
        seen = seen & (place >= first) & (place < stop)
    return seen


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.float64)


def _rows(keys: Any, rows: bool) -> Any:
    return _wide(keys) if rows else _wide(keys).swapaxes(1, 2)


def _number(array: Any) -> int:
    return 0 if array is None else int(np.ravel(array)[0])


def _by_tiles(columns: Any, dtype: Any) -> Any:
    """(batch, queries, 1) as (batch, 128, tiles), 0 after the last query."""
    batch, count, _ = columns.shape
    tiles = -(-count // _TILE)
    padded = np.zeros((batch, tiles * _TILE))
    padded[:, :count] = columns[:, :, 0]
    return padded.reshape(batch, tiles, _TILE).swapaxes(1, 2).astype(dtype.numpy)
