"""What follows from the logits of a tile of tokens: the chosen experts, and the affinities to them."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.router_topk.plan import SLOTS, Router, in_sbuf
from nkilib.streaming import sbuf

LOWEST = -3.4028234663852886e38
"""Below every logit: in columns that fill up to eight experts, and in the place of logits that were chosen."""

_NOTHING = float("nan")
"""Is equal to no logit."""


def route(router: Router, logits: Any, rows: slice) -> None:
    """Everything that follows from the logits of at most 128 tokens, and the stores of it."""
    tokens = logits.shape[0]
    top, index = sbuf((tokens, SLOTS), nl.float32), sbuf((tokens, SLOTS), nl.uint32)
    nisa.max8(dst=top, src=logits)
    nisa.nc_find_index8(dst=index, data=logits, vals=top)
    _put(router, router.logits, logits[:, : router.experts], rows)
    _put(router, router.index, index[:, : router.k], rows)
    shift = _shift(top) if router.softmax else None
    every: Any = None
    chosen: Any = None
    total: Any = None
    if router.sums_all or not router.by_dma:
        every, total = _activated(logits, shift, router.sums_all)
    if router.sums_chosen or router.by_dma or router.eager is not None:
        chosen, sums = _activated(top[:, : router.k], shift, router.sums_chosen)
        total = sums if router.sums_chosen else total
    inverse = _inverse(total)
    if router.eager is not None:
        _put(router, router.eager, _scaled(chosen, inverse, nl.float32), rows)
    if router.by_dma:
        _scatter(router, _scaled(chosen, inverse, router.affinities.dtype), index, rows)
        return
    if router.scattered:
        every = _masked(router, logits, top, every)
    affinities = _scaled(every[:, : router.experts], inverse, router.affinities.dtype)
    _put(router, router.affinities, affinities, rows)


def _put(router: Router, target: Any, tile: Any, rows: slice) -> None:
    """A tile into rows of a result, converted on chip: DMA that converts keeps GpSimd busy."""
    if target is None:
        return
    if in_sbuf(target):
        nisa.tensor_copy(dst=target, src=tile)
        return
    if tile.dtype != target.dtype:
        tile = _scaled(tile, None, target.dtype)
    if router.writes:
        nisa.dma_copy(dst=target[rows, :], src=tile, dge_mode=nisa.dge_mode.none)


def _shift(top: Any) -> Any:
    """Minus the largest logit of each token: no exponential of what is left exceeds 1."""
    shift = sbuf((top.shape[0], 1), nl.float32)
    nisa.tensor_scalar(dst=shift, data=top[:, 0:1], op0=nl.multiply, operand0=-1.0)
    return shift


def _activated(logits: Any, shift: Any, summed: bool) -> tuple[Any, Any]:
    """Exponentials of shifted logits, or sigmoids if there is no shift; and the sum of each row if it is wanted."""
    values = sbuf(logits.shape, nl.float32)
    total = sbuf((logits.shape[0], 1), nl.float32) if summed else None
    sums: dict[str, Any] = {"reduce_op": nl.add, "reduce_res": total, "reduce_cmd": nisa.reduce_cmd.reset_reduce}
    sums = sums if summed else {}
    if shift is None:
        nisa.activation(dst=values, op=nl.sigmoid, data=logits, **sums)
    else:
        nisa.activation(dst=values, op=nl.exp, data=logits, bias=shift, **sums)
    return values, total


def _inverse(total: Any) -> Any:
    if total is None:
        return None
    inverse = sbuf(total.shape, nl.float32)
    nisa.reciprocal(dst=inverse, data=total)
    return inverse


def _masked(router: Router, logits: Any, top: Any, values: Any) -> Any:
    """The values of the chosen experts, 0 for the others.

    Vector puts a mark in the place of each chosen logit, of equal ones in the place of the first, as the search for
    their indices does. Marks that are compared then take exactly k values, however many logits are equal.
    """
    best = top
    if router.k < SLOTS:
        best = streaming.filled(top.shape, nl.float32, _NOTHING)
        nisa.tensor_copy(dst=best[:, : router.k], src=top[:, : router.k])
    marked, masked = sbuf(logits.shape, nl.float32), sbuf(logits.shape, nl.float32)
    nisa.nc_match_replace8(dst=marked, data=logits, vals=best, imm=LOWEST)
    nisa.scalar_tensor_tensor(dst=masked, data=marked, op0=nl.equal, operand0=LOWEST, op1=nl.multiply, operand1=values)
    return masked


def _scaled(values: Any, factor: Any, dtype: Any) -> Any:
    """Values times a column, or as they are, in a new tile of this dtype; by Scalar, which has less to do."""
    tile = sbuf(values.shape, dtype)
    if factor is None:
        nisa.tensor_copy(dst=tile, src=values, engine=nisa.engine.scalar)
    else:
        nisa.activation(dst=tile, op=nl.copy, data=values, scale=factor)
    return tile


def _scatter(router: Router, chosen: Any, index: Any, rows: slice) -> None:
    """Zeros in rows of HBM, then each token's k affinities in their places, one of every token with each transfer."""
    tokens, experts = chosen.shape[0], router.experts
    if not router.writes:
        return
    streaming.store(router.affinities[rows, :], streaming.filled((tokens, experts), chosen.dtype, 0.0))
    first, places = sbuf((tokens, router.k), nl.uint32), sbuf((tokens, router.k), nl.uint32)
    nisa.iota(dst=first, pattern=[[0, router.k]], offset=rows.start * experts, channel_multiplier=experts)
    nisa.tensor_tensor(dst=places, data1=first, data2=index[:, : router.k], op=nl.add)
    every = router.affinities.reshape((router.affinities.size, 1))
    for slot in range(router.k):
        place = places[:, slot : slot + 1]
        target = every.ap([[1, tokens], [1, 1]], vector_offset=place, indirect_dim=0)
        nisa.dma_copy(dst=target, src=chosen[:, slot : slot + 1])
