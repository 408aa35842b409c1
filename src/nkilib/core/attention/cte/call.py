"""A call of prefill attention, from its arguments to its results."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from nkilib import limits, tuned
from nkilib import streaming as st
from nkilib.core.attention.cte.again import attend
from nkilib.core.attention.cte.block import Call
from nkilib.core.attention.cte.checks import check
from nkilib.core.attention.cte.operands import CHUNK, TILE, Segment
from nkilib.core.attention.cte.sight import sight_of

_NARROW = 96
"""d up to which products take so much less time that Vector computes every third bank of weights."""


def prefill(arguments: Mapping[str, Any], maxima: bool) -> Any:
    """Check the arguments, compute, and return what was asked for.

    Args:
        arguments: of `attention_cte`, by name.
        maxima: whether what is returned beside the sums is the largest score, or anything that was taken off.
    """
    check(arguments)
    a = SimpleNamespace(**arguments)
    batch, queries = a.q.shape[0], a.q.shape[1 if a.tp_q else 2]
    length, features = a.v.shape[1:]
    kept = (batch, TILE, st.ceil_div(queries, TILE))
    neg_max, sums = (st.result(kept, a.softmax_dtype) if a.cache_softmax else None for _ in range(2))
    prior = 0 if a.v_prior is None else a.v_prior.shape[1]
    segments = (
        Segment(a.k_prior, a.v_prior, prior, a.tp_k, True, 0),
        Segment(a.k, a.v, length, a.tp_k, False, st.ceil_div(prior, CHUNK) * CHUNK),
    )
    call = Call(
        q=a.q,
        out=st.result((batch, features, queries) if a.tp_out else (batch, queries, features), a.q.dtype),
        neg_max=neg_max,
        sums=sums,
        sink=a.sink,
        bias=a.position_bias,
        segments=segments if prior else segments[1:],
        sight=sight_of(arguments, queries),
        scale=a.scale,
        group=batch // a.k.shape[0],
        rows=a.tp_q,
        columns=a.tp_out,
        normalized=not a.skip_output_normalization,
        maxima=maxima,
        plan=plan_of((queries, length, prior, features), a.tiles),
    )
    attend(call)
    return (call.out, neg_max, sums) if a.cache_softmax else call.out


def plan_of(sizes: tuple[int, int, int, int], tiles: Mapping[str, int] | None) -> dict[str, int]:
    """Sizes by rule, by the table of winners, or as the caller says.

    Args:
        sizes: queries, keys, keys of the prefix, and d.
    """
    queries, keys, prior, d = sizes
    trip = st.ceil_div(keys, TILE) + st.ceil_div(prior, TILE)
    rule = {"ahead": 5, "vector": 4 if d > _NARROW else 3, "section": 8192, "exact": 50 + 2 * trip}
    plan = tuned.choose("attention_cte", {"queries": queries, "keys": keys, "d": d}, rule, tiles)
    limits.multiple('tiles["section"]', plan["section"], CHUNK, "keys are loaded so many at a time")
    return plan
