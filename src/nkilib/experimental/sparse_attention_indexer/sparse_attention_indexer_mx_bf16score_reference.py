"""What `sparse_attention_indexer_mx_bf16score` computes, in NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nkilib.experimental.mla.deepseek.packed_reference import quantized, rounded


def sparse_attention_indexer_mx_bf16score_reference(
    x: Any,
    wq_b: Any,
    wk: Any,
    k_norm_gamma: Any,
    k_norm_beta: Any,
    weights_proj: Any,
    cos: Any,
    sin: Any,
    k_cache: Any,
    mask: Any,
    n_heads: int,
    head_dim: int,
    rope_head_dim: int,
    index_topk: int,
    start_pos: int,
    use_hadamard: bool = False,
    batch_size: int = 1,
    wq_b_scale: Any = None,
    wk_scale: Any = None,
    k_scale_cache: Any = None,
    x_non_mx: Any = None,
    x_mx_data: Any = None,
    x_mx_scale: Any = None,
    qr_qtz_hbm: Any = None,
    qr_scale_hbm: Any = None,
    phase: str = "all",
    k_seq_out_hbm: Any = None,
    end_pos_arg: int | None = None,
    emit_flat_topk: bool = False,
    emit_tiled_topk: bool = False,
) -> tuple[Any, Any]:
    """Scores in float64 and positions; keys are put in place."""
    batch, sequence = batch_size, len(x) // batch_size
    angles = np.tile(np.asarray(cos, np.float64), (batch, 1)), np.tile(np.asarray(sin, np.float64), (batch, 1))
    if phase != "score":
        states = quantized(rounded(np.asarray(x)))
        if x_mx_data is not None:
            states = dequantized(
                *(np.asarray(each).reshape(*each.shape[:2], -1, 128) for each in (x_mx_data, x_mx_scale))
            )
            states = by_tokens(states, batch, sequence)
        raw = states @ fine(wk, wk_scale)
        normal = (raw - raw.mean(-1, keepdims=True)) / np.sqrt(raw.var(-1, keepdims=True) + 1e-6)
        normal = normal * np.asarray(k_norm_gamma, np.float64) + np.asarray(k_norm_beta, np.float64)
        keys = turned(normal[:, None], *angles, rope_head_dim)[:, 0].astype(ml_dtypes.bfloat16)
        if phase == "kproj":
            k_seq_out_hbm[...] = keys
            return k_seq_out_hbm, None
        k_cache[:, :, start_pos : start_pos + sequence] = keys.reshape(batch, sequence, -1).transpose(0, 2, 1)
    end = end_pos_arg if phase == "score" and end_pos_arg is not None else start_pos + sequence
    latents = by_tokens(dequantized(np.asarray(qr_qtz_hbm), np.asarray(qr_scale_hbm)), batch, sequence)
    queries = (latents @ fine(wq_b, wq_b_scale)).reshape(len(x), n_heads, head_dim)
    queries = rounded(turned(queries, *angles, rope_head_dim)).reshape(batch, sequence, n_heads, head_dim)
    source = rounded(np.asarray(x if x_non_mx is None else x_non_mx))
    weights = source @ np.asarray(weights_proj, np.float64).T * (n_heads * head_dim) ** -0.5
    products = np.einsum("bshd,bdk->bshk", queries, np.asarray(k_cache[:, :, :end], np.float64))
    scores = np.einsum("bshk,bsh->bsk", np.maximum(products, 0), weights.reshape(batch, sequence, n_heads))
    scores = scores.reshape(len(x), end) + np.asarray(mask, np.float64)
    order = np.argsort(rounded(scores), axis=-1, kind="stable")[:, -index_topk:]  # the smallest first
    if emit_flat_topk:
        return scores, order.astype(np.int32)
    return scores, _tiled(order, batch, sequence, emit_tiled_topk)


def _tiled(order: Any, batch: int, sequence: int, narrow: bool) -> Any:
    """Positions (rows, k) as (tiles, 16, 128, k or k / 16): 16 rows of eight queries each."""
    k, tiles = order.shape[1], -(-sequence // 128)
    columns = -(-k // 16)
    whole = np.zeros((batch, tiles * 128, columns * 16), np.int64)
    whole[:, :sequence, :k] = order.reshape(batch, sequence, k)
    found = whole.reshape(batch * tiles, 16, 8, columns, 16).swapaxes(3, 4).reshape(batch * tiles, 16, 128, columns)
    if narrow:
        return found.astype(np.int32)
    return np.concatenate([found, np.zeros((*found.shape[:3], k - columns), np.int64)], axis=-1).astype(np.uint32)


def fine(data: Any, scales: Any) -> Any:
    """Weights (K, N) of packed ones (K / 4, N), and a scale for 32 of K."""
    words = np.ascontiguousarray(np.asarray(data).view(np.uint32))
    numbers = words.view(ml_dtypes.float8_e4m3fn).astype(np.float64).reshape(*words.shape, 4)
    return numbers.transpose(0, 2, 1).reshape(-1, words.shape[1]) * np.repeat(
        2.0 ** (np.asarray(scales, np.float64) - 127), 32, axis=0
    )


def dequantized(data: Any, scales: Any) -> Any:
    """States (tiles, 128, K) of words and scales (tiles, 128, K / 512, 128)."""
    words = np.ascontiguousarray(data.view(np.uint32))
    numbers = words.view(ml_dtypes.float8_e4m3fn).astype(np.float64).reshape(*words.shape, 4)
    group = np.arange(128) // 8  # of the words that share a scale
    wide = 2.0 ** (scales[:, group // 4 * 32 + group % 4].astype(np.float64) - 127)
    return (numbers * wide[..., None]).transpose(0, 3, 2, 1, 4).reshape(len(data), 128, -1)


def by_tokens(states: Any, batch: int, sequence: int) -> Any:
    """States (tokens of all batches, K) of tiles, of which each batch has whole ones."""
    return states.reshape(batch, -1, states.shape[-1])[:, :sequence].reshape(batch * sequence, -1)


def turned(values: Any, cos: Any, sin: Any, columns: int) -> Any:
    """Values (tokens, heads, D) whose first columns are rotated, pairs that lie half of them apart."""
    a, b, rest = np.split(values, [columns // 2, columns], axis=-1)
    c, s = cos[:, None], sin[:, None]
    return np.concatenate([a * c - b * s, a * s + b * c, rest], axis=-1)
