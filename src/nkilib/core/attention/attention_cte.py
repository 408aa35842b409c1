"""Attention for prefill: all queries of a prompt at once, without storing the scores.

Math, for the queries q of a head, and the keys k and values v of the head of keys that belongs to it::

    scores = scale * (q @ k.T + position_bias)          of the keys that a query sees
    out = exp(scores - m) @ v / (sum(exp(scores - m)) + exp(sink - m))          for any m

A query sees keys up to its own position (`causal_mask`), at most `sliding_window` of them, within its bounds, and the
used part of the prefix. Heads are part of the batch; with fewer heads of keys, each serves a group of heads of queries.

Layouts: q (batch, queries, d) or (batch, d, queries); k (batch_kv, d, keys) or (batch_kv, keys, d); v (batch_kv, keys,
d). bfloat16, float16 or float32 come in; products are of bfloat16, sums, scores and exponentials are float32.

Limits: d <= 128; any number of queries and keys; Trainium2 and later. A query that sees no key gets zeros. Values up to
2**47 in magnitude: weighted sums of larger ones may leave the range of float32.

Engines: Tensor multiplies queries and keys with keys on partitions, so that Scalar, and Vector for every fourth bank,
make weights that are stationary operands of the product with the values as they are; GpSimd masks tiles on the
diagonal, and tiles that nobody sees are left out. Tensor bounds it with d = 128, the exponentials below. Nothing is
taken off the scores there (m = 0): the sums of the weights, a column of ones beside the values, tell afterwards whether
one of them left the range that is safe, and only then a loop computes all queries of the core again, with the largest
score as m (`cte.again`). That way, with queries on partitions, is taken at once where sums are returned, where what a
query sees depends on the call's tensors, and for few queries and keys.

Source: attention-cte.rst of the published library; Dao et al., "FlashAttention", 2022, for sections of long sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

import nki
import nki.language as nl
from nkilib import limits
from nkilib.core.attention.backward.prefill import prefill_gradients
from nkilib.core.attention.cte.call import prefill


@nki.jit
def attention_cte(
    q: nl.NkiTensor,
    k: nl.NkiTensor,
    v: nl.NkiTensor,
    scale: float = 1.0,
    causal_mask: bool = True,
    k_prior: nl.NkiTensor | None = None,
    v_prior: nl.NkiTensor | None = None,
    prior_used_len: nl.NkiTensor | None = None,
    sink: nl.NkiTensor | None = None,
    sliding_window: int | None = None,
    tp_q: bool = True,
    tp_k: bool = False,
    tp_out: bool = False,
    cache_softmax: bool = False,
    softmax_dtype: Any = nl.float32,
    mm_out_dtype: Any = nl.float32,
    cp_offset: nl.NkiTensor | None = None,
    global_cp_deg: int | None = None,
    cp_strided_q_slicing: bool = False,
    bound_min: nl.NkiTensor | None = None,
    bound_max: nl.NkiTensor | None = None,
    cp_striped_input: bool = False,
    skip_output_normalization: bool = False,
    position_bias: nl.NkiTensor | None = None,
    bias_layout: str = "dense",
    bias_band_params: dict[str, int] | None = None,
    *,
    tiles: Mapping[str, int] | None = None,
) -> Any:
    """``softmax(scale * (q @ k.T + position_bias)) @ v`` of the keys that each query sees.

    Args:
        q: (batch, queries, d) with `tp_q`, else (batch, d, queries).
        k: (batch_kv, keys, d) with `tp_k`, else (batch_kv, d, keys).
        v: (batch_kv, keys, d).
        scale: of the scores, positive.
        causal_mask: query i sees the prefix and the keys up to i.
        k_prior, v_prior: a prefix before the keys, in their layouts, of which `prior_used_len`, one number, are used.
        sink: (batch, 1), a score that counts in the sums of each head without a value of its own.
        sliding_window: a query sees its own position and so many less one before it; None or 0 for all.
        tp_out: the result is (batch, d, queries), else (batch, queries, d).
        cache_softmax: return what the softmax was made of.
        softmax_dtype: of that, float32 or bfloat16.
        mm_out_dtype: of sums in PSUM, float32.
        cp_offset: (1, 1), the position of the first query, where a rank has a part of them; -1 or 0 with
            `cp_striped_input`.
        global_cp_deg: ranks that have parts.
        cp_strided_q_slicing: a rank has every `global_cp_deg`-th query, from position `cp_offset` on.
        bound_min, bound_max: (batch, queries), the first key that a query sees and the one after the last, of sequences
            that are packed into one; a single row for all of the batch will do.
        cp_striped_input: queries and keys of a rank are every `global_cp_deg`-th of the sequence, so that query i sees
            the keys up to i + `cp_offset`.
        skip_output_normalization: return results that are not divided by their sums; with `cache_softmax`.
        position_bias: (batch, queries, columns), added before the scale. Columns are the prefix, padded to a multiple
            of 512, and the keys.
        bias_layout: "dense".
        bias_band_params: None.
        tiles: "ahead", steps that begin before one ends; "vector", every so many banks of weights are Vector's, 0 for
            none; "section", keys in SBUF at once, a multiple of 512; "exact", pairs of tiles of queries and keys up to
            which a core takes maxima at once.

    Returns:
        The result in the dtype of `q`. With `cache_softmax` a tuple of it, the negated largest scaled score, and the
        inverse of the sum of the weights, or the sum itself with `skip_output_normalization`: (batch, 128, tiles), of
        query 128 * t + p at [p, t].

    Raises:
        KernelLimit: see `cte.checks`.
    """
    return prefill(locals(), maxima=True)


_DERIVED = "q", "k", "v", "sink", "bound_min", "bound_max"
_NOT_DERIVED = "k_prior", "cp_offset", "position_bias"


@nki.jit
def attention_with_sums(
    q: nl.NkiTensor,
    k: nl.NkiTensor,
    v: nl.NkiTensor,
    sink: nl.NkiTensor | None,
    bound_min: nl.NkiTensor | None,
    bound_max: nl.NkiTensor | None,
    scale: float,
    causal_mask: bool,
    sliding_window: int | None,
    tp_q: bool,
    tp_k: bool,
    tp_out: bool,
    tiles: Mapping[str, int] | None,
) -> Any:
    """The result, what was added to the scaled scores of each query, and the inverse of its sum, for the gradient."""
    given = locals()
    others = {name: each.default for name, each in signature(attention_cte.func).parameters.items()}
    return prefill(others | {"cache_softmax": True} | given, maxima=False)


def _forward(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
    given = signature(attention_cte.func).bind(*args, **kwargs)
    given.apply_defaults()
    options = {name: given.arguments[name] for name in _NOT_DERIVED}
    options["cache_softmax"] = given.arguments["cache_softmax"] or None
    limits.not_built(options, "the derivative of attention_cte")
    names = signature(attention_with_sums.func).parameters
    out, shift, inverse = attention_with_sums(**{name: given.arguments[name] for name in names})
    return out, {name: given.arguments[name] for name in _DERIVED} | {"made": (out, shift, inverse)}


def _backward(
    residuals: dict[str, Any],
    gradient: Any,
    scale: float,
    causal_mask: bool,
    sliding_window: int | None,
    tp_q: bool,
    tp_k: bool,
    tp_out: bool,
) -> dict[str, Any]:
    q, k, v, sink, first, stop = (residuals[name] for name in _DERIVED)
    out, shift, inverse = residuals["made"]
    tensors = q, k, v, out, shift, inverse, gradient, sink, first, stop
    made = prefill_gradients(*tensors, scale, causal_mask, sliding_window, tp_q, tp_k, tp_out)
    return dict(zip(_DERIVED, made, strict=False))


attention_cte.defvjp(_forward, _backward)
