"""The order in which attention over a cache is computed: the queries' own keys, then segments of the prefix in a loop.

With a window, the part of the prefix that somebody sees is before the queries' own keys in one segment, and the rest is
not looked at: it begins before the sequence if the prefix is shorter.

Sums of all queries that a core computes stay in SBUF while segments pass by, as many as there is room for. How many
segments there are is only known on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.again import SECTION, again, watched
from nkilib.core.attention.cte.block import BANK, Block, Call, Constants, Part
from nkilib.core.attention.cte.exact import Row, bias_of
from nkilib.core.attention.cte.fast import Columns
from nkilib.core.attention.cte.operands import TILE, Segment
from nkilib.core.attention.cte.results import finish
from nkilib.core.attention.cte.sight import NOT_SEEN, Limits, Sight, unused
from nkilib.core.attention.cte.work import Share, in_turn, sections
from nkilib.core.attention.pipeline import run
from nkilib.core.attention.segmented.cache import Cache, Paged

_SUMS_BYTES = 49152
"""Of a partition, that sums of queries may have, which stay while segments pass by."""


@dataclass(frozen=True)
class Segments:
    """One call.

    Attributes:
        call: whose only segment are the queries' own keys.
        cache: keys and values.
        prior: keys of the prefix, a scalar of the device.
        segment: keys of the prefix at once.
        heads: of queries, of each sequence.
        scale: what queries are multiplied by, ``(d, 1)`` float32, or None.
    """

    call: Call
    cache: Cache
    prior: Any
    segment: int
    heads: int
    scale: Any = None

    def compute(self) -> None:
        """What this core does."""
        share = Share(self.call, BANK)
        ragged = bool(share.left) and nl.num_programs(0) > 1 and self.call.queries % TILE > 0
        kind: Any = Row if ragged else Columns
        if kind is Row:
            share = Share(self.call, TILE)
        blocks = [block for _, some in share.blocks() for block in some]
        if not blocks:
            return
        sums = watched(blocks) if kind is Columns else None
        for some in st.spans(len(blocks), together(self.call, share.width)):
            self._pass(kind, blocks[some])
        if sums is not None:
            again(share, sums, self._exactly)

    def _exactly(self, call: Call, head: Any, start: Any) -> None:
        """Compute at most 128 queries of a head, of which only the device knows which they are."""
        call = replace(call, constants=Constants(), plan={**call.plan, "section": SECTION})
        self._pass(Row, [Block(call, head, start, min(TILE, call.queries))])

    def _pass(self, kind: Any, blocks: Sequence[Block]) -> None:
        """Compute some queries.

        Args:
            kind: class of a block with some keys.
        """
        for block in blocks:
            if self.scale is not None:
                queries = block.queries
                nisa.tensor_scalar(dst=queries, data=queries, op0=nl.multiply, operand0=self.scale)
        for part in sections(blocks[0].call):
            keys = slice(part[0][1].start, part[-1][1].stop)
            self._run(kind, blocks, part, partial(self.cache.in_order, start=self.start, keys=keys))
        if not self.call.sight.window:
            self._prefix(kind, blocks)
        for block in blocks:
            if kind is Row:
                block.bias = bias_of(block.largest, block.call.scale)
            finish(block)

    def _prefix(self, kind: Any, blocks: Sequence[Block]) -> None:
        """Add all of the prefix."""
        prefix = [(Segment(None, None, self.segment, True, True, 0), slice(0, self.segment))]
        in_runs = kind is Columns and self.cache.run > 1

        def body(index: Any) -> None:
            call = self._over(blocks[0].call, index, self.cache.run if in_runs else 1)
            here = [replace(block, call=call, limits={}) for block in blocks]
            if in_runs:
                load = partial(self.cache.in_runs, segment=index, count=self.segment)
            else:
                load = partial(self.cache.in_order, start=index * self.segment, keys=prefix[0][1])
            self._run(kind, here, prefix, load)
            for block, passed in zip(blocks, here, strict=True):
                if kind is Row:
                    nisa.tensor_copy(dst=block.largest, src=passed.largest)

        nl.fori_loop(0, (self.prior + (self.segment - 1)) // self.segment, body)

    @property
    def start(self) -> Any:
        """The first key of the call's segment in the sequence, a scalar of the device."""
        return self.prior + (self.call.segments[0].first or 0)

    def _run(self, kind: Any, blocks: Sequence[Block], part: list[Part], load: Callable[[Any, Any], Paged]) -> None:
        """Some keys for some queries.

        Args:
            load: gives the keys of a sequence and a head.
        """
        keys: dict[Any, Paged] = {}
        work = []
        for block in blocks:
            of = block.head // self.heads, block.head % self.heads * self.cache.heads // self.heads
            place = of if block.fixed else None
            if place not in keys:
                keys[place] = load(*of)
            work.append(kind(block, keys[place], part, False))
        run(in_turn(work), blocks[0].call.plan["ahead"])

    def _over(self, call: Call, index: Any, run: int) -> Call:
        """The call over a segment of the prefix."""
        left = self.prior - index * self.segment
        used = st.sbuf((TILE, 1), nl.float32)
        nisa.iota(dst=used, pattern=[[0, 1]], offset=left, channel_multiplier=0)
        sight = replace(call.sight, used=used, unused=unused(self.segment, used, run))
        return replace(call, sight=sight, constants=Constants())


def together(call: Call, width: int) -> int:
    """Blocks of queries whose sums SBUF has room for, of a width."""
    return max(1, _SUMS_BYTES // (st.ceil_div(width, TILE) * (call.features + 1) * 4))


def sight_of(window: int, ahead: int, queries: int, prior: Any) -> Sight:
    """Rules of the call's own segment.

    Args:
        window: keys that a query sees, its own among them; 0 for all.
        ahead: keys of the prefix in the segment.
        queries: of a head.
        prior: keys of the prefix, a scalar of the device.
    """
    if not ahead:
        return Sight(True, window, False, Limits(), Limits())
    least, length = st.sbuf((TILE, 1), nl.float32), ahead + queries
    nisa.iota(dst=least, pattern=[[0, 1]], offset=(0 - prior + ahead).maximum(0), channel_multiplier=0)
    tiles = st.ceil_div(length, TILE)
    position, hidden = st.sbuf((TILE, tiles), nl.float32), st.sbuf((TILE, tiles), nl.float32)
    nisa.iota(dst=position, pattern=[[TILE, tiles]], channel_multiplier=1)
    nisa.tensor_scalar(dst=hidden, data=position, op0=nl.less, operand0=least, op1=nl.multiply, operand1=NOT_SEEN)
    return Sight(True, window, False, Limits(), Limits(), unused=hidden, least=least)
