"""Attention of queries over a rank's part of a cache that several ranks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Block, Call, Constants
from nkilib.core.attention.cte.exact import LOWEST, Row, bias_of
from nkilib.core.attention.cte.operands import TILE
from nkilib.core.attention.cte.results import finish
from nkilib.core.attention.cte.work import Share
from nkilib.core.attention.segmented.order import Segments, together


@dataclass(frozen=True)
class Shard(Segments):
    """One call, whose queries see keys by numbers in device memory; all keys that somebody sees are its prefix."""

    def compute(self) -> None:
        """What this core does."""
        blocks = [block for _, some in Share(self.call, TILE).blocks() for block in some]
        for some in st.spans(len(blocks), together(self.call, TILE)):
            self._pass(Row, blocks[some])

    def _pass(self, kind: Any, blocks: Sequence[Block]) -> None:
        """Compute some queries."""
        for block in blocks:
            block.totals = st.filled((block.count, 1, block.call.features + 1), nl.float32, 0.0)
            block.largest = st.filled((block.count, 1), nl.float32, LOWEST)
        self._prefix(kind, blocks)
        for block in blocks:
            block.bias = bias_of(block.largest, block.call.scale)
            finish(block)

    def _over(self, call: Call, index: Any, run: int) -> Call:
        behind = st.sbuf((TILE, 1), nl.float32)
        nisa.iota(dst=behind, pattern=[[0, 1]], offset=index * self.segment, channel_multiplier=0)
        return replace(call, sight=replace(call.sight, behind=behind), constants=Constants())


@dataclass(frozen=True)
class Distribution:
    """Which keys of the sequence a rank has.

    Attributes:
        offset: position of the first query, counted from the rank's first key, or from that of the sequence with
            `ranks`; a scalar of the device.
        ranks: that have blocks in turns; 0 if this one's keys follow each other.
        rank: place of this one among them, a scalar of the device.
        block: keys of a block.
        window: keys that a query sees, its own among them; 0 for all.
        length: keys of this rank.
    """

    offset: Any
    ranks: int
    rank: Any
    block: int
    window: int
    length: int

    def limits(self, queries: int) -> tuple[Any, Any]:
        """The first of this rank's keys that each query sees, and the one after the last, ``(1, queries)`` float32."""
        found = [nl.ndarray((1, queries), dtype=nl.float32, buffer=nl.private_hbm) for _ in range(2)]
        for span in st.spans(queries, TILE):
            for target, ahead in zip(found, (1 - self.window, 1), strict=True):
                count = self._before(self.offset + (span.start + ahead), st.size(span))
                if target is found[0] and not self.window:
                    count = st.filled((st.size(span), 1), nl.float32, 0.0)
                st.store(target[0, span], count)
        return found[0], found[1]

    def last(self, queries: int) -> Any:
        """How many of this rank's keys the last query sees at most, a scalar of the device."""
        after = self.offset + queries
        if self.ranks:
            after = (after.maximum(0) // (self.ranks * self.block) + 1) * self.block
        return after.maximum(0).minimum(self.length)

    def _before(self, start: Any, count: int) -> Any:
        """How many of this rank's keys are before as many positions, from `start` on, ``(count, 1)`` float32."""
        place = st.sbuf((count, 1), nl.int32)
        nisa.iota(dst=place, pattern=[[0, 1]], offset=start, channel_multiplier=1)
        number = st.sbuf((count, 1), nl.float32)
        nisa.tensor_scalar(dst=number, data=place, op0=nl.maximum, operand0=0.0)
        if not self.ranks:
            nisa.tensor_scalar(dst=number, data=number, op0=nl.minimum, operand0=float(self.length))
            return number
        return self._in_turns(number)

    def _in_turns(self, number: Any) -> Any:
        """The same where ranks have blocks in turns: whole rounds, and the rank's part of the last one."""
        every, shape = self.ranks * self.block, number.shape
        rest, whole, own = (st.sbuf(shape, nl.float32) for _ in range(3))
        rounds, centred = st.sbuf(shape, nl.int32), -0.5 * (every - 1)  # rounds to the nearest: never to a tie
        nisa.tensor_scalar(dst=rounds, data=number, op0=nl.add, operand0=centred, op1=nl.multiply, operand1=1.0 / every)
        nisa.tensor_scalar(dst=whole, data=rounds, op0=nl.multiply, operand0=-float(every))
        nisa.tensor_tensor(dst=rest, data1=number, data2=whole, op=nl.add)
        nisa.tensor_scalar(dst=whole, data=rounds, op0=nl.multiply, operand0=float(self.block))
        before = st.sbuf(shape, nl.float32)
        nisa.iota(dst=before, pattern=[[0, 1]], offset=self.rank * self.block, channel_multiplier=0)
        nisa.tensor_tensor(dst=own, data1=rest, data2=before, op=nl.subtract)
        nisa.tensor_scalar(dst=own, data=own, op0=nl.maximum, operand0=0.0, op1=nl.minimum, operand1=float(self.block))
        nisa.tensor_tensor(dst=own, data1=own, data2=whole, op=nl.add)
        nisa.tensor_scalar(dst=own, data=own, op0=nl.minimum, operand0=float(self.length))
        return own
