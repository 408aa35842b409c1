"""Gradients of `attention_cte`, in its layouts."""

from __future__ import annotations

from functools import partial
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.backward.operands import Stack
from nkilib.core.attention.backward.order import STACKS, Gradients
from nkilib.core.attention.backward.pair import Rules
from nkilib.core.attention.backward.sinks import SinkGradients
from nkilib.core.attention.cte.operands import TILE
from nkilib.core.attention.cte.sight import by_head


@nki.jit
def prefill_gradients(
    q: nl.NkiTensor,
    k: nl.NkiTensor,
    v: nl.NkiTensor,
    out: nl.NkiTensor,
    neg_max: nl.NkiTensor,
    inverse: nl.NkiTensor,
    gradient: nl.NkiTensor,
    sink: nl.NkiTensor | None,
    bound_min: nl.NkiTensor | None,
    bound_max: nl.NkiTensor | None,
    scale: float,
    causal_mask: bool,
    sliding_window: int | None,
    tp_q: bool,
    tp_k: bool,
    tp_out: bool,
) -> list[nl.NkiTensor]:
    """Gradients of q, k, v, and of the sink if there is one.

    Args:
        out, neg_max, inverse: results of `attention_cte` with ``cache_softmax``.
        gradient: of `out`.
    """
    results = [st.result(each.shape, each.dtype) for each in (q, k, v)]
    ways = tp_q, tp_k, True, not tp_out, not tp_out, tp_q, tp_k, True
    stacks = [Stack(each, rows) for each, rows in zip((q, k, v, out, gradient, *results), ways, strict=True)]
    sinks = None
    if sink is not None:
        results.append(st.result(sink.shape, sink.dtype))
        sinks = SinkGradients(sink, results[3]).add
    first, stop = (None if bound is None else by_head(bound, stacks[0].places) for bound in (bound_min, bound_max))
    Gradients(
        **dict[str, Any](zip(STACKS, stacks, strict=True)),
        rules=Rules(scale, causal_mask, sliding_window or 0, first, stop),
        bias=partial(_bias, neg_max, inverse),
        sinks=sinks,
    ).compute()
    return results


def _bias(neg_max: Any, inverse: Any, head: int, span: slice) -> Any:
    """What is added to scores of some queries, so that their exponentials are the weights: ``(128, tiles)`` float32."""
    tiles = slice(span.start // TILE, st.ceil_div(span.stop, TILE))
    largest, sums = (st.load(tensor[head, :, tiles], nl.float32) for tensor in (neg_max, inverse))
    clipped, logarithm, result = (st.sbuf(sums.shape, nl.float32) for _ in range(3))
    # of queries that see keys it is from 1 / keys to 1; there are others, and places without a query
    nisa.tensor_scalar(dst=clipped, data=sums, op0=nl.maximum, operand0=2.0**-30, op1=nl.minimum, operand1=1.0)
    nisa.activation(dst=logarithm, op=nl.log, data=clipped)
    nisa.tensor_tensor(dst=result, data1=largest, data2=logarithm, op=nl.add)
    return result
