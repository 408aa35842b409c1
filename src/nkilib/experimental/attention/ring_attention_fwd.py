"""Attention of a sequence that several ranks share: keys and values go round a ring, queries stay.

Math, for the queries q of a rank and the keys k[r] and values v[r] of all ranks r::

    scores = scale * q @ k[r].T                          of the keys that a query sees
    out = sum over r of exp(scores) @ v[r] / sum over r of sum(exp(scores))
    lse = log(sum over r of sum(exp(scores)))

The ranks' parts of the sequence follow each other, or are striped: rank r of n has the positions r, r + n, r + 2n, ...

Layouts: q (batch, heads, d, queries), or (batch, heads, queries, d) with `tp_q`; k likewise; v (batch, heads_kv, keys,
d). bfloat16, float16 or float32 come in; products are of bfloat16, sums are float32.

Limits: those of `attention_cte`; queries and keys as many where a mask is causal.

Engines: each step is `attention_cte` over the keys that are here, by the Tensor engine, while the collective queue
brings the next ones; GpSimd and Vector add its results to those before during the next step. The products bound it, or
the links for few queries. Where parts follow each other, a rank sees all keys of another one or none, so that no step
but the first has a mask. No step is left out: the last rank needs all of them, and the others wait for it.

Source: Liu et al., "Ring Attention with Blockwise Transformers", 2023; Brandon et al., "Striped Attention", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki.collectives import ReplicaGroup
from nkilib import limits
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Call
from nkilib.core.attention.cte.call import plan_of
from nkilib.core.attention.cte.checks import DTYPES
from nkilib.core.attention.cte.operands import TILE, Segment
from nkilib.core.attention.cte.partial import Partial, computed, store
from nkilib.core.attention.cte.sight import Limits, Positions, Sight, by_head
from nkilib.experimental.attention import ranks


@nki.jit
def ring_attention_spmd_fwd(
    q: nl.NkiTensor,
    k: nl.NkiTensor,
    v: nl.NkiTensor,
    replica_groups: Any = None,
    num_workers: int = 1,
    softmax_scale: float | None = None,
    use_causal_mask: bool = False,
    striped_input: bool = False,
    training: bool = False,
    lse_dtype: Any = nl.float32,
    tp_q: bool = False,
    tp_k: bool = False,
    bound_min: nl.NkiTensor | None = None,
    bound_max: nl.NkiTensor | None = None,
    *,
    tiles: Mapping[str, int] | None = None,
) -> Any:
    """Attention of this rank's queries over the keys of all ranks of a ring.

    Args:
        q: (batch, heads, queries, d) with `tp_q`, else (batch, heads, d, queries).
        k: (batch, heads_kv, keys, d) with `tp_k`, else (batch, heads_kv, d, keys).
        v: (batch, heads_kv, keys, d).
        replica_groups: lists of ranks, each a ring in its order; by default one of all.
        num_workers: ranks of a ring.
        softmax_scale: of the scores, positive; by default d**-0.5, also with a causal mask.
        use_causal_mask: a query sees no keys of later positions.
        striped_input: rank r of n has every n-th position, from r on; with `use_causal_mask`.
        training: return logarithms of the sums as well.
        lse_dtype: of those, float32 or bfloat16.
        bound_min, bound_max: (batch * heads, queries, 1), the first key of each rank that a query sees and the one
            after the last, of sequences that are packed into one, and striped alike on all ranks; a single row for all
            of the batch will do.
        tiles: as in `attention_cte`.

    Returns:
        (batch, heads, queries, d) in the dtype of `q`; with `training` a tuple of it and the logarithms of the sums of
        the exponentials of the scaled scores, (batch, heads, 128, tiles), of query 128 * t + p at [p, t], 0 for a query
        that sees no key.

    Raises:
        KernelLimit: see `_check`.
    """
    sizes = _check(locals())
    batch, heads, count, d = (sizes[name] for name in ("batch", "heads", "queries", "d"))
    group = ranks.group_of(replica_groups, num_workers)
    bounds = None if bound_min is None else (by_head(bound_min, count), by_head(bound_max, count))
    call = Call(
        q=_by_head(q),
        out=None,
        neg_max=None,
        sums=None,
        sink=None,
        bias=None,
        segments=(Segment(_by_head(k), _by_head(v), sizes["keys"], tp_k, False, 0),),
        sight=Sight(use_causal_mask, 0, False, Limits(), Limits()),
        scale=softmax_scale or d**-0.5,
        group=heads // sizes["heads_kv"],
        rows=tp_q,
        columns=False,
        normalized=False,
        maxima=False,
        plan=plan_of((count, sizes["keys"], 0, d), tiles),
    )
    out = st.result((batch * heads, count, d), q.dtype)
    lse = st.result((batch * heads, TILE, st.ceil_div(count, TILE)), lse_dtype) if training else None
    _Ring(call, group, num_workers, use_causal_mask, striped_input, bounds).compute(out, lse)
    result = out.reshape((batch, heads, count, d))
    return result if lse is None else (result, lse.reshape((batch, heads, *lse.shape[1:])))


def _by_head(tensor: Any) -> Any:
    return tensor.reshape((prod(tensor.shape[:2]), *tensor.shape[2:]))


@dataclass(frozen=True)
class _Ring:
    """What is computed in all steps.

    Attributes:
        call: of the first step, with this rank's keys.
        group, count: ranks, and how many of them a ring has.
        causal, striped, bounds: arguments of the kernel; bounds are by head.
    """

    call: Call
    group: ReplicaGroup
    count: int
    causal: bool
    striped: bool
    bounds: tuple[Any, Any] | None

    def compute(self, out: Any, lse: Any) -> None:
        """All steps, and the results."""
        sums: Partial | None = None
        for step, (call, none) in enumerate(self._calls()):
            new = computed(call)
            for block in new.blocks():
                found = new.of(block)
                if sums is not None:
                    found = sums.of(block).plus(found if none is None else found.hidden(none))
                if step + 1 == self.count:
                    store(block, found, out, lse)
                elif sums is not None:
                    sums.put(block, found)
            sums = sums or new

    def _calls(self) -> Iterator[tuple[Call, Any]]:
        """The call of each step, and a tile of 1 if none of its keys is seen and else 0, or None."""
        segment = self.call.segments[0]
        passing = ranks.Passing((segment.k, segment.v), self._parts())
        table = ranks.places(self.group) if self.causal and self.count > 1 else None
        own = None if table is None else ranks.place(0, self.group, table)
        for step, (k, v) in enumerate(ranks.steps(passing, self.group, self.count)):
            call = replace(self.call, segments=(replace(segment, k=k, v=v),))
            if step == 0 or not self.causal:
                yield replace(call, sight=self._sight(0)), None
                continue
            later = ranks.place(step, self.group, table) > own
            if self.striped:
                yield replace(call, sight=self._sight(0 - later)), None
            else:
                yield replace(call, sight=Sight(False, 0, False, Limits(), Limits())), _filled(later)

    def _parts(self) -> list[slice]:
        """Heads of keys that this core needs."""
        call, cores, core = self.call, nl.num_programs(0), nl.program_id(0)
        each = call.heads // cores
        parts = [slice(core * each, (core + 1) * each), slice(each * cores, call.heads)]
        return [slice(part.start // call.group, st.ceil_div(part.stop, call.group)) for part in parts if st.size(part)]

    def _sight(self, shift: Any) -> Sight:
        """What queries see of the keys of a rank, where those of their own number count if a scalar is 0, not -1."""
        if self.bounds is None:
            return replace(self.call.sight, shift=shift)
        offset = _filled(shift)
        positions = Positions(self.call.queries, offset, 1, self.bounds, None)
        return Sight(True, 0, False, positions.limits(True, 0, prior=False), Limits())


def _filled(number: Any) -> Any:
    """A number that the device knows, on each partition, ``(128, 1)`` float32."""
    tile = st.sbuf((TILE, 1), nl.float32)
    nisa.iota(dst=tile, pattern=[[0, 1]], offset=number, channel_multiplier=0)
    return tile


def _check(a: Mapping[str, Any]) -> dict[str, int]:
    """Check the arguments of a call, by name.

    Raises:
        KernelLimit: a code of `nkilib.limits`, with the numbers.
    """
    limits.generation("ring_attention_spmd_fwd", 3, "range_select hides scores of keys that a query does not see")
    last = ("queries", "d") if a["tp_q"] else ("d", "queries")
    sizes = limits.shape("q", a["q"], ("batch", "heads", *last))
    limits.shape("k", a["k"], ("batch", "heads_kv", *(("keys", "d") if a["tp_k"] else ("d", "keys"))), sizes)
    limits.shape("v", a["v"], ("batch", "heads_kv", "keys", "d"), sizes)
    limits.between("d", sizes["d"], 1, 128, "the products contract over it on 128 partitions")
    limits.between("keys", sizes["keys"], 1, 1 << 24, "positions are float32")
    limits.multiple("heads", sizes["heads"], sizes["heads_kv"], "each head of keys serves as many heads of queries")
    limits.same_dtype(q=a["q"], k=a["k"], v=a["v"])
    limits.dtype("q", a["q"], DTYPES)
    limits.between("num_workers", a["num_workers"], 1, 1 << 16)
    scale = a["softmax_scale"]
    limits.need(scale is None or scale > 0, "softmax_scale", scale, "softmax_scale is positive, or None", "pass None")
    limits.one_of("lse_dtype", a["lse_dtype"], (nl.float32, nl.bfloat16))
    if a["use_causal_mask"]:
        limits.shape("v", a["v"], ("batch", "heads_kv", sizes["queries"], "d"), dict(sizes))
    ranks.check_bounds(a, "striped_input", sizes["queries"], sizes["batch"] * sizes["heads"])
    return sizes
