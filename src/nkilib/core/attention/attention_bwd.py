"""Gradients of attention, from its result and the logarithms of its sums: scores are computed again, never stored.

Math, for P = exp(scale * q @ k.T - lse) where a query sees a key, else 0, and dO the gradient of the result O::

    dS = P * (dO @ V.T - D)        D = rowsum(dO * O)        dsink = -sum(exp(sink - lse) * D)
    dQ = scale * dS @ K            dK = scale * dS.T @ Q     dV = P.T @ dO

Gradients of keys are summed over the heads of queries that share them.

Layouts: q, o, dy (batch, heads, d, queries), k, v (batch, heads_kv, d, keys); lse (batch, heads, 128, tiles), of query
128 * t + p at [p, t]. bfloat16, float16 or float32 come in; products are of bfloat16, sums are float32.

Limits: d <= 128, Trainium2 and later; any number of queries and keys.

Engines: Tensor multiplies, 512 keys at a time, with queries on partitions, so that only the change of the scores has to
be turned, for the gradient of the queries; Scalar takes the exponentials and turned tiles from PSUM, Vector the change,
GpSimd masks the diagonal. Tensor bounds it: six products, of which the model counts five.

Source: attention_bwd of the published library; Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib import streaming as st
from nkilib.core.attention.backward.operands import Stack
from nkilib.core.attention.backward.order import STACKS, Gradients
from nkilib.core.attention.backward.pair import Rules
from nkilib.core.attention.backward.sinks import SinkGradients, flat
from nkilib.core.attention.cte.checks import DTYPES
from nkilib.core.attention.cte.operands import TILE


@nki.jit
def attention_bwd(
    q_ref: nl.NkiTensor,
    k_ref: nl.NkiTensor,
    v_ref: nl.NkiTensor,
    o_ref: nl.NkiTensor,
    dy_ref: nl.NkiTensor,
    lse_ref: nl.NkiTensor,
    sinks_ref: nl.NkiTensor | None = None,
    bound_min: nl.NkiTensor | None = None,
    bound_max: nl.NkiTensor | None = None,
    use_causal_mask: bool = False,
    mixed_precision: bool = False,
    softmax_scale: float | None = None,
    sliding_window: int | None = None,
) -> tuple[nl.NkiTensor, ...]:
    """Gradients of q, k, v, and of sinks if there are any.

    Args:
        q_ref, o_ref, dy_ref: (batch, heads, d, queries): queries, the result, and its gradient.
        k_ref, v_ref: (batch, heads_kv, d, keys).
        lse_ref: (batch, heads, 128, tiles) float32, logarithms of the sums of the exponentials of the scaled scores.
        sinks_ref: (batch, heads) or (batch, heads, sinks), scores that count in the sums without a value.
        bound_min, bound_max: (queries,), the first key that a query sees and the one after the last.
        use_causal_mask: query i sees the keys up to i.
        mixed_precision: of no effect, which is told: sums and what is made of them are float32 either way.
        softmax_scale: of the scores, by default d**-0.5.
        sliding_window: keys that a query sees at most, its own among them; None or 0 for all.

    Returns:
        (dq, dk, dv), and the gradient of the sinks, each like its argument.

    Raises:
        KernelLimit: see `check`.
    """
    why = "as sums are float32 either way"
    limits.without_effect("attention_bwd", why, mixed_precision=mixed_precision or None)
    scale = softmax_scale or q_ref.shape[2] ** -0.5
    window = sliding_window or 0
    tensors = {"q_ref": q_ref, "k_ref": k_ref, "v_ref": v_ref, "o_ref": o_ref, "dy_ref": dy_ref}
    check("attention_bwd", tensors, lse_ref, sinks_ref, {"bound_min": bound_min, "bound_max": bound_max})
    limits.need(scale > 0, "softmax_scale", softmax_scale, "softmax_scale is positive, or None", "pass None")
    limits.need(window >= 0, "sliding_window", window, "sliding_window is None or not negative", "pass None")
    results = [st.result(each.shape, each.dtype) for each in (q_ref, k_ref, v_ref)]
    sinks = None
    if sinks_ref is not None:
        results.append(st.result(sinks_ref.shape, sinks_ref.dtype))
        sinks = SinkGradients(flat(sinks_ref), flat(results[3])).add
    sums = lse_ref.reshape((prod(lse_ref.shape[:2]), *lse_ref.shape[2:]))
    stacks = [Stack(_by_head(each), rows=False) for each in (*tensors.values(), *results[:3])]
    Gradients(
        **dict[str, Any](zip(STACKS, stacks, strict=True)),
        rules=Rules(scale, use_causal_mask, window, _as_row(bound_min), _as_row(bound_max)),
        bias=lambda head, span: _negated(sums[head], span),
        sinks=sinks,
    ).compute()
    return tuple(results)


def _by_head(tensor: Any) -> Any:
    """``(batch, heads, d, places)`` as ``(heads, d, places)``."""
    batch, heads, width, places = tensor.shape
    return tensor.reshape((batch * heads, width, places))


def _as_row(bound: Any) -> Any:
    return None if bound is None else bound.reshape((1, *bound.shape))


def _negated(sums: Any, span: slice) -> Any:
    """What is added to scores of some queries, ``(128, tiles)`` float32."""
    loaded = st.load(sums[:, span.start // TILE : st.ceil_div(span.stop, TILE)], nl.float32)
    result = st.sbuf(loaded.shape, nl.float32)
    nisa.tensor_scalar(dst=result, data=loaded, op0=nl.multiply, operand0=-1.0)
    return result


def check(kernel: str, tensors: Mapping[str, Any], lse: Any, sinks: Any, bounds: Mapping[str, Any]) -> None:
    """Check the tensors of a call.

    Raises:
        KernelLimit: ``nkilib.shape``, ``nkilib.dtype``, ``nkilib.argument`` or ``nkilib.target``.
    """
    limits.generation(kernel, 3, "range_select hides scores of keys that a query does not see")
    queries, keys = ("batch", "heads", "d", "queries"), ("batch", "heads_kv", "d", "keys")
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        limits.shape(name, tensor, keys if name in ("k_ref", "v_ref") else queries, sizes)
    limits.between("d", sizes["d"], 1, 128, "products contract over it on 128 partitions")
    limits.multiple("heads", sizes["heads"], sizes["heads_kv"], "each head of keys serves as many heads of queries")
    limits.same_dtype(**tensors)
    limits.dtype("q_ref", tensors["q_ref"], DTYPES)
    tiles = st.ceil_div(sizes["queries"], TILE)
    limits.shape("lse_ref", lse, ("batch", "heads", TILE, tiles), sizes)
    if sinks is not None:
        limits.shape("sinks_ref", sinks, ("batch", "heads", "sinks")[: max(2, len(sinks.shape))], sizes)
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    both = "bound_min and bound_max come together"
    limits.need(len(given) in (0, 2), "the bounds", f"{', '.join(given)} alone", both, "pass both")
    for name, bound in given.items():
        limits.shape(name, bound, ("queries",), sizes)
