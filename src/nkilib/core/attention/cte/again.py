"""Prefill attention for any scores: fast, and exact once more if the fast way was wrong for one query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.block import BANK, Block, Call, Constants
from nkilib.core.attention.cte.exact import Row
from nkilib.core.attention.cte.fast import Columns
from nkilib.core.attention.cte.operands import TILE, Head
from nkilib.core.attention.cte.work import Share, in_turn, items, sections
from nkilib.core.attention.pipeline import run

SAFE = 2.0**-60, 2.0**80
"""Sums of weights that are right: no weight overflowed, and what underflowed beside the largest does not count."""

SECTION = 2048
"""Keys of a section when queries are computed again: one block of queries alone has no other work beside it."""


def attend(call: Call) -> Share:
    """Compute what this core does of a call, and say what that is."""
    exact = _exactly_at_once(call)
    share = Share(call, TILE if exact else BANK)
    work = list(items(share, Row if exact else Columns))
    if not work:
        return share
    sums = None if exact else watched([item.block for item in work if item.last])
    run(in_turn(work), call.plan["ahead"])
    if sums is not None:
        again(share, sums, _exactly)
    return share


def _exactly_at_once(call: Call) -> bool:
    """Whether the largest scores are computed at once: where they are needed, and where looking back takes longer."""
    share = Share(call, TILE)
    ragged = call.queries % TILE > 0 and (call.sums is not None or (bool(share.left) and nl.num_programs(0) > 1))
    needed = call.bias is not None or (call.sums is not None and call.maxima)
    return needed or ragged or not call.sight.known or _is_small(share)


def _is_small(share: Share) -> bool:
    """Whether one trip of the loop takes longer than maxima for all queries."""
    tiles = 0
    for _, blocks in share.blocks():
        for segment in share.call.segments:
            tiles += sum(st.ceil_div(st.size(block.visible(segment)), TILE) for block in blocks)
    return tiles <= share.call.plan["exact"]


def watched(blocks: list[Block]) -> Any:
    """A tile for the sums of the weights of all queries, ``(128, tiles)``; each block gets its part of it."""
    sums = st.filled((TILE, sum(len(block.tiles) for block in blocks)), nl.float32, 1.0)
    at = 0
    for block in blocks:
        block.weights = sums[:, at : at + len(block.tiles)]
        at += len(block.tiles)
    return sums


def again(share: Share, sums: Any, exactly: Callable[[Call, Any, Any], None]) -> None:
    """Compute all blocks of this core exactly, in a loop that has no trips if all sums are safe.

    Args:
        sums: of `watched`.
        exactly: computes at most 128 queries of a call, from the head and the first query, scalars of the device.
    """
    call = share.call
    tiles, inside = st.ceil_div(call.queries, TILE), share.narrow // TILE
    whole = len(share.heads) * tiles
    count = whole + len(share.left) * len(share.turns) * inside

    def body(index: Any) -> None:
        head, tile = index // tiles + share.heads.start, index % tiles
        if share.left:
            beyond = index - whole
            number = share.turn(beyond // inside) * inside + beyond % inside
            late = index >= whole
            head, tile = head + late * (share.left.start - head), tile + late * (number - tile)
        exactly(call, head, (tile * TILE).minimum(max(0, call.queries - TILE)))

    nl.fori_loop(0, _unsafe(sums) * count, body)


def _exactly(call: Call, head: Any, start: Any) -> None:
    """Compute at most 128 queries of a head, of which only the device knows which they are."""
    call = replace(call, constants=Constants(), plan={**call.plan, "section": SECTION})
    block = Block(call, head, start, min(TILE, call.queries))
    keys, parts = Head(head // call.group), sections(call)
    rows = [Row(block, keys, section, section is parts[-1]) for section in parts]
    run(in_turn(rows), call.plan["ahead"])


def _unsafe(sums: Any) -> Any:
    """1 if one of the sums is not safe or not a number, else 0, as a scalar of the device."""
    least, most = SAFE
    above, safe = st.sbuf(sums.shape, nl.float32), st.sbuf(sums.shape, nl.float32)
    nisa.tensor_scalar(dst=above, data=sums, op0=nl.greater_equal, operand0=least)
    nisa.scalar_tensor_tensor(dst=safe, data=sums, op0=nl.less_equal, operand0=most, op1=nl.multiply, operand1=above)
    rows = st.sbuf((TILE, 1), nl.float32)
    nisa.tensor_reduce(dst=rows, op=nl.minimum, data=safe, axis=(1,))
    row, all_safe, unsafe = st.transpose(rows), st.sbuf((1, 1), nl.float32), st.sbuf((1, 1), nl.int32)
    nisa.tensor_reduce(dst=all_safe, op=nl.minimum, data=row, axis=(1,))
    nisa.tensor_scalar(dst=unsafe, data=all_safe, op0=nl.equal, operand0=0.0)
    return nisa.scalar_load(unsafe)
