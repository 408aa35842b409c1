"""Gradients of attention of a sequence that several ranks share: queries go round a ring, keys and values stay.

Math, as in `attention_bwd`, for the queries of all ranks and the keys of this one::

    P = exp(scale * q @ k.T - lse)       dS = P * (dO @ V.T - D)       D = rowsum(dO * O)
    dK = sum of scale * dS.T @ Q         dV = sum of P.T @ dO          dQ = sum over the ranks of scale * dS @ K

What a rank knows of its queries goes round: q, the gradient of the result, lse and D. Their own gradient follows them
one step behind, grows on every rank, and is at home after as many steps as there are ranks.

Layouts: q, o, dy (batch, heads, d, queries), k, v (batch, heads_kv, d, keys); lse (batch, heads, 128, tiles), of query
128 * t + p at [p, t]. bfloat16, float16 or float32 come in; products are of bfloat16, sums and results are float32.

Limits: those of `attention_bwd`; queries and keys as many where a mask is causal.

Engines: each step is `attention_bwd` over the queries that are here, which the Tensor engine bounds, while the
collective queue brings the next ones; gradients of the queries wait for the step before. The cores of a launch share
heads of keys, and each passes on those of its own.

Source: Liu et al., "Ring Attention with Blockwise Transformers", 2023; Brandon et al., "Striped Attention", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki.collectives import ReplicaGroup
from nkilib import limits
from nkilib import streaming as st
from nkilib.core.attention.attention_bwd import check
from nkilib.core.attention.backward.operands import Matrix, Queries, Stack
from nkilib.core.attention.backward.order import Gradients
from nkilib.core.attention.backward.pair import Rules
from nkilib.core.attention.cte.operands import CHUNK, TILE
from nkilib.core.attention.cte.sight import by_head
from nkilib.experimental.attention import ranks

_NONE = -1.0e30
"""Added to scores of keys that nobody sees."""


@nki.jit
def ring_attention_spmd_bwd(
    q_ref: nl.NkiTensor,
    k_ref: nl.NkiTensor,
    v_ref: nl.NkiTensor,
    o_ref: nl.NkiTensor,
    dy_ref: nl.NkiTensor,
    lse_ref: nl.NkiTensor,
    use_causal_mask: bool = False,
    mixed_precision: bool = True,
    softmax_scale: float | None = None,
    num_workers: int = 1,
    lnc_size: int = 1,
    replica_groups: Any = None,
    striped_attention: bool = False,
    bound_min: nl.NkiTensor | None = None,
    bound_max: nl.NkiTensor | None = None,
) -> tuple[nl.NkiTensor, ...]:
    """Gradients of this rank's queries, keys and values.

    Args:
        q_ref, o_ref, dy_ref: (batch, heads, d, queries): queries, the result, and its gradient.
        k_ref, v_ref: (batch, heads_kv, d, keys).
        lse_ref: (batch, heads, 128, tiles) float32, from `ring_attention_spmd_fwd` with `training`.
        use_causal_mask: a query sees no keys of later positions.
        mixed_precision: sums and what is made of them are float32 either way.
        softmax_scale: of the scores, by default d**-0.5.
        num_workers: ranks of a ring.
        lnc_size: cores of the launch.
        replica_groups: lists of ranks, each a ring in its order; by default one of all.
        striped_attention: rank r of n has every n-th position, from r on; with `use_causal_mask`.
        bound_min, bound_max: (batch * heads, queries), as in `ring_attention_spmd_fwd`; the same on all ranks.

    Returns:
        (dq, dk, dv) in float32, each as its argument.

    Raises:
        KernelLimit: see `_check`.
    """
    given = {"q_ref": q_ref, "k_ref": k_ref, "v_ref": v_ref, "o_ref": o_ref, "dy_ref": dy_ref}
    _check(locals(), given)
    group = ranks.group_of(replica_groups, num_workers)
    results = [st.result(each.shape, nl.float32) for each in (q_ref, k_ref, v_ref)]
    q, k, v, out, gradient, *made = (
        Stack(each.reshape((prod(each.shape[:2]), *each.shape[2:])), rows=False) for each in (*given.values(), *results)
    )
    bounds = [None if each is None else by_head(each, q.places) for each in (bound_min, bound_max)]
    rules = Rules(softmax_scale or q.width**-0.5, use_causal_mask, 0, *bounds)
    sums = lse_ref.reshape((q.tensor.shape[0], *lse_ref.shape[2:]))
    ring = _Ring(k, v, rules, group, num_workers, striped_attention, q_ref.shape[1] // k_ref.shape[1])
    ring.compute(_known(q, out, gradient, sums, ring.heads), made)
    return tuple(results)


def _known(q: Stack, out: Stack, gradient: Stack, sums: Any, heads: slice) -> list[Any]:
    """What goes round: queries, gradients of results, and ``(heads, 2, 128, tiles)`` of -lse and D."""
    numbers = nl.ndarray((sums.shape[0], 2, *sums.shape[1:]), dtype=nl.float32, buffer=nl.private_hbm)
    ones = st.filled((TILE, 1), nl.float32, 1.0)
    for head in range(heads.start, heads.stop):
        for span in st.spans(q.places, CHUNK):
            tiles = _tiles(span)
            loaded = st.load(sums[head, :, tiles], nl.float32)
            negated = st.sbuf(loaded.shape, nl.float32)
            nisa.tensor_scalar(dst=negated, data=loaded, op0=nl.multiply, operand0=-1.0)
            products = st.filled(loaded.shape, nl.float32, 0.0)
            columns, above, made = (Matrix(each, head, span) for each in (q, gradient, out))
            Queries(columns, above, made, negated, products).compute(ones)
            for number, tile in enumerate((negated, products)):
                st.store(numbers[head, number, :, tiles], tile)
    return [q.tensor, gradient.tensor, numbers]


def _tiles(span: slice) -> slice:
    return slice(span.start // TILE, st.ceil_div(span.stop, TILE))


@dataclass(frozen=True)
class _Ring:
    """What is computed in all steps.

    Attributes:
        k, v: of this rank.
        rules: of the first step.
        group, count: ranks, and how many of them a ring has.
        striped: argument of the kernel.
        shared: heads of queries for each head of keys.
    """

    k: Stack
    v: Stack
    rules: Rules
    group: ReplicaGroup
    count: int
    striped: bool
    shared: int

    @property
    def heads(self) -> slice:
        """Heads of queries of this core."""
        mine = st.share(range(self.k.tensor.shape[0]))
        return slice(mine[0] * self.shared, (mine[-1] + 1) * self.shared) if mine else slice(0, 0)

    def compute(self, known: list[Any], made: list[Stack]) -> None:
        """All steps.

        Args:
            known: what goes round, of this rank.
            made: gradients of queries, keys and values.
        """
        parts = [self.heads] if st.size(self.heads) else []
        grown = ranks.Passing([made[0].tensor], parts)
        here, free = ([Stack(each, rows=False) for each in grown.room()] for _ in range(2))
        table = ranks.places(self.group) if self.rules.causal and self.count > 1 else None
        own = None if table is None else ranks.place(0, self.group, table)
        for step, tensors in enumerate(ranks.steps(ranks.Passing(known, parts), self.group, self.count)):
            later = None if step == 0 or own is None else own > ranks.place(step, self.group, table)
            last = step + 1 == self.count
            call = self._call(tensors, later)
            into = made[0] if self.count == 1 else free[0]
            begun = (here[0], made[1], made[2]) if step else (None, None, None)
            replace(call, dq=into, dk=made[1], dv=made[2], begun=begun, scaled=last).compute()
            if self.count > 1:
                grown.send([free[0].tensor], [here[0].tensor], self.group)
        if self.count > 1:
            for part in parts:
                st.copy(made[0].tensor[part], here[0].tensor[part])

    def _call(self, tensors: list[Any], later: Any) -> Gradients:
        """Gradients that the queries that are here give.

        Args:
            tensors: what goes round.
            later: whether this rank's place is later than theirs, a scalar of the device; None of its own queries, and
                where that does not count.
        """
        q, gradient = (Stack(each, rows=False) for each in tensors[:2])
        rules, none = self.rules, None
        if later is not None and self.striped:
            rules = replace(rules, shift=0 - later)
        elif later is not None:
            rules, none = replace(rules, causal=False), _hidden(later)
        return Gradients(
            q=q,
            k=self.k,
            v=self.v,
            out=None,
            gradient=gradient,
            dq=q,
            dk=self.k,
            dv=self.v,
            rules=rules,
            bias=partial(_numbers, tensors[2], 0, none),
            products=partial(_numbers, tensors[2], 1, None),
        )


def _hidden(later: Any) -> Any:
    """A number that hides all scores where a scalar of the device is 1, else 0, ``(128, 1)`` float32."""
    tile = st.sbuf((TILE, 1), nl.float32)
    nisa.iota(dst=tile, pattern=[[0, 1]], offset=later, channel_multiplier=0)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=_NONE)
    return tile


def _numbers(numbers: Any, which: int, none: Any, head: int, span: slice) -> Any:
    """Numbers of some queries, ``(128, tiles)`` float32."""
    loaded = st.load(numbers[head, which, :, _tiles(span)])
    if none is None:
        return loaded
    result = st.sbuf(loaded.shape, nl.float32)
    nisa.tensor_scalar(dst=result, data=loaded, op0=nl.add, operand0=none)
    return result


def _check(a: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Check the arguments of a call, by name.

    Raises:
        KernelLimit: a code of `nkilib.limits`, with the numbers.
    """
    count = a["q_ref"].shape[-1]
    check("ring_attention_spmd_bwd", tensors, a["lse_ref"], None, {})
    if a["use_causal_mask"]:
        limits.shape("k_ref", a["k_ref"], ("batch", "heads_kv", "d", count))
    scale = a["softmax_scale"]
    limits.need(scale is None or scale > 0, "softmax_scale", scale, "softmax_scale is positive, or None", "pass None")
    limits.between("num_workers", a["num_workers"], 1, 1 << 16)
    cores = nl.num_programs(0)
    rule = f"lnc_size says how many cores the launch has, and it has {cores}"
    limits.need(a["lnc_size"] == cores, "lnc_size", a["lnc_size"], rule, f"pass lnc_size={cores}")
    ranks.check_bounds(a, "striped_attention", count, prod(a["q_ref"].shape[:2]))
