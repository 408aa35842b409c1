"""Who computes what in prefill attention, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Block, Call, Part
from nkilib.core.attention.cte.operands import TILE, Head
from nkilib.core.attention.pipeline import Step

TOGETHER = 2048
"""Queries for which a section of a longer sequence is loaded once."""


@dataclass(frozen=True)
class Share:
    """What this core computes of a call: whole heads, and blocks of the one that is left, if there is one.

    Attributes:
        call: of the kernel.
        width: queries of a block.
    """

    call: Call
    width: int

    @property
    def heads(self) -> range:
        """Whole heads."""
        each, core = self.call.heads // nl.num_programs(0), nl.program_id(0)
        return range(core * each, (core + 1) * each)

    @property
    def left(self) -> range:
        """The head of which each core computes some blocks."""
        return range(len(self.heads) * nl.num_programs(0), self.call.heads)

    @property
    def narrow(self) -> int:
        """Queries of a block of the head that is left."""
        return min(self.width, st.ceil_div(st.ceil_div(self.call.queries, TILE), nl.num_programs(0)) * TILE)

    @property
    def turns(self) -> list[int]:
        """Which blocks of the head that is left are this core's."""
        count = st.ceil_div(self.call.queries, self.narrow)
        return [turn for turn in map(self.turn, range(count)) if turn < count]

    def turn(self, number: Any) -> Any:
        """This core's first, second, ... block, an int or a scalar of the device: 0, 3, 4, 7, ... or 1, 2, 5, 6, ...

        Later queries see more keys, so that cores do not get every other block.
        """
        return number if nl.num_programs(0) == 1 else number * 2 + (number + nl.program_id(0)) % 2

    def blocks(self) -> Iterator[tuple[int, list[Block]]]:
        """Heads and their blocks."""
        for head in self.heads:
            yield head, [self._block(head, span) for span in st.spans(self.call.queries, self.width)]
        for head in self.left:
            spans = st.spans(self.call.queries, self.narrow)
            yield head, [self._block(head, spans[turn]) for turn in self.turns]

    def _block(self, head: int, span: slice) -> Block:
        return Block(self.call, head, span.start, st.size(span))


def items(share: Share, kind: Any) -> Iterator[Any]:
    """Blocks of queries with the keys of each section, as objects of a class like `Row` or `Columns`.

    All keys of a short sequence stay in SBUF for all queries. Of a longer one a section is loaded for some blocks.
    """
    parts = sections(share.call)
    heads: dict[int, Head] = {}
    for head, blocks in share.blocks():
        index = head // share.call.group
        if len(parts) == 1:
            yield from (kind(block, heads.setdefault(index, Head(index)), parts[0], True) for block in blocks)
            continue
        for some in st.spans(len(blocks), TOGETHER // share.width):
            for section in parts:
                keys = Head(index)
                yield from (kind(block, keys, section, section is parts[-1]) for block in blocks[some])


def sections(call: Call) -> list[list[Part]]:
    """Keys that are in SBUF at once."""
    tiles = [(segment, span) for segment in call.segments for span in st.spans(segment.length, TILE)]
    return [_joined(tiles[some]) for some in st.spans(len(tiles), call.plan["section"] // TILE)]


def _joined(tiles: Sequence[Part]) -> list[Part]:
    """Tiles of one segment that follow each other as one part."""
    parts: list[Part] = []
    for segment, keys in tiles:
        if parts and parts[-1][0] is segment:
            keys = slice(parts.pop()[1].start, keys.stop)
        parts.append((segment, keys))
    return parts


def in_turn(work: Sequence[Any]) -> Iterator[Step]:
    """The second half of each item beside the first half of the next one, so that both end together."""
    yield from work[0].first()
    for item, following in zip_longest(work, work[1:]):
        beside = [] if following is None else list(following.first())
        if not beside:
            yield from item.second()
            continue
        steps = list(item.second())
        for place, step in enumerate(steps):
            yield step
            yield from beside[len(beside) * place // len(steps) : len(beside) * (place + 1) // len(steps)]
