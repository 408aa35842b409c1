"""Prefill attention that takes the largest score off before the exponential, with queries on partitions.

Nothing about the scores is assumed, and what a query sees may depend on the call's tensors: Vector hides the other
scores while it brings them to SBUF, and finds the largest. Weights are turned by the Tensor engine, because the second
product contracts over keys. Sections of a longer sequence follow each other as in flash attention: when a larger score
turns up, what was summed before is scaled down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.block import Block, Part, common
from nkilib.core.attention.cte.operands import PRODUCTS, TILE, Head, KeyTile, Segment
from nkilib.core.attention.cte.results import finish, keep
from nkilib.core.attention.pipeline import Step

LOWEST = -1.0e30
"""The largest score of a query that sees no key; all that is hidden is far below."""

WIDTH = 1024
"""Weights of a query that one instruction computes; turned, those of 128 queries fill a bank of PSUM."""


class Piece(NamedTuple):
    """At most 1,024 keys and the scores of all queries of a block.

    Attributes:
        segment, keys: which keys; they start at a multiple of 128.
        scores: ``(queries, keys)`` float32.
    """

    segment: Segment
    keys: slice
    scores: Any


@dataclass
class Row:
    """At most 128 queries and the keys of a section.

    Attributes:
        block: the queries.
        keys: in SBUF.
        parts: of the section.
        last: whether no section follows.
        pieces: of the keys that a query of the block may see.
        bias: ``-scale`` times the largest score, ``(queries, 1)``.
        shrink: what sums of earlier sections are multiplied by, or None.
    """

    block: Block
    keys: Head
    parts: list[Part]
    last: bool
    pieces: list[Piece] = field(default_factory=list)
    bias: Any = None
    shrink: Any = None

    def first(self) -> Iterator[Step]:
        """Steps up to the largest score of each query."""
        for segment, keys in self.parts:
            seen = common(keys, self.block.visible(segment))
            for part in st.spans(st.size(seen), WIDTH):
                here = slice(seen.start + part.start, seen.start + part.stop)
                self.pieces.append(Piece(segment, here, st.sbuf((self.block.count, st.size(here)), nl.float32)))
        loaded = [
            (piece, keys, tile) for piece in self.pieces for keys, tile in self.keys.keys(piece.segment, piece.keys)
        ]
        begins = self.block.largest is not None or self.block.call.sink is not None or not loaded
        found = st.sbuf((self.block.count, len(loaded) + begins), nl.float32)
        if begins:
            yield Step((partial(self._begin, found[:, len(loaded) : len(loaded) + 1]),))
        for at, some in enumerate(loaded):
            yield Step((partial(self._score, *some, found[:, at : at + 1]),))
        yield Step((partial(self._largest, found),))

    def second(self) -> Iterator[Step]:
        """Steps from the weights to the sums of values, and to the result."""
        sums = st.psum((self.block.count, 1, self.block.call.features + 1))
        for number, piece in enumerate(self.pieces):
            tiles = self.keys.tiles(piece.segment, piece.keys)
            made, held = self._room(tiles)
            yield Step(
                (
                    partial(self._weigh, made, piece.scores),
                    partial(self._turn, made, held, tiles, number % 3 == 2),
                    partial(self._sum, held, tiles, sums, number > 0),
                )
            )
        yield Step((_nothing, _nothing, partial(self._finish, sums if self.pieces else None)))

    def _room(self, tiles: Sequence[KeyTile]) -> tuple[Any, Any]:
        """Weights of some keys with queries on partitions, and with keys on partitions tile by tile."""
        count, rows = sum(tile.size for tile in tiles), self.block.count
        return st.sbuf((rows, count), PRODUCTS), st.sbuf((TILE, len(tiles) * rows), PRODUCTS)

    def _score(self, piece: Piece, keys: slice, tile: Any, largest: Any) -> None:
        """Scores of at most 512 keys, the lowest number where a query does not see the key, and the largest."""
        call = self.block.call
        raw = st.psum((self.block.count, st.size(keys)))
        nisa.nc_matmul(dst=raw, stationary=self.block.queries, moving=tile)
        if call.bias is not None:
            self._add_bias(raw, piece.segment, keys)
        first, stop = self._limits(piece.segment)
        nisa.range_select(
            dst=piece.scores[:, keys.start - piece.keys.start : keys.stop - piece.keys.start],
            on_true_tile=raw,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=first,
            bound1=stop,
            range_start=keys.start,
            reduce_res=largest,
        )

    def _limits(self, segment: Segment) -> tuple[Any, Any]:
        if segment not in self.block.limits:
            self.block.limits[segment] = limits(self.block, segment)
        return self.block.limits[segment]

    def _add_bias(self, scores: Any, segment: Segment, keys: slice) -> None:
        """Add the bias of the keys to scores in PSUM, as a product with the identity."""
        block, columns = self.block, slice(segment.before + keys.start, segment.before + keys.stop)
        bias = st.load(block.call.bias[block.head, block.span, columns])
        same = block.call.constants.identity(bias.dtype)[0 : block.count, 0 : block.count]
        nisa.nc_matmul(dst=scores, stationary=same, moving=bias, accumulate=True)

    def _begin(self, column: Any) -> None:
        """The largest score of earlier sections, or that of the sink, before scores are scaled."""
        block, call = self.block, self.block.call
        if block.largest is not None:
            nisa.tensor_copy(dst=column, src=block.largest)
        elif call.sink is None:
            nisa.memset(dst=column, value=LOWEST)
        else:
            sink = block.sink()[0 : block.count, :]
            nisa.tensor_scalar(dst=column, data=sink, op0=nl.multiply, operand0=1.0 / call.scale)

    def _largest(self, found: Any) -> None:
        """The largest score so far, and what earlier sums are multiplied by."""
        block, scale = self.block, self.block.call.scale
        before, block.largest = block.largest, found
        if found.shape[1] > 1:
            block.largest = st.sbuf((block.count, 1), nl.float32)
            nisa.tensor_reduce(dst=block.largest, op=nl.maximum, data=found, axis=(1,))
        self.bias = block.bias = bias_of(block.largest, scale)
        if before is not None:
            self.shrink = st.sbuf((block.count, 1), nl.float32)
            nisa.activation(dst=self.shrink, op=nl.exp, data=before, scale=scale, bias=self.bias)

    def _weigh(self, made: Any, scores: Any) -> None:
        """Weights of some keys."""
        nisa.activation(dst=made, op=nl.exp, data=scores, scale=self.block.call.scale, bias=self.bias)

    def _turn(self, made: Any, held: Any, tiles: Sequence[KeyTile], vector: bool) -> None:
        """Weights with keys on partitions; Scalar and Vector share the way to SBUF."""
        rows = self.block.count
        turned = st.psum(held.shape, PRODUCTS)
        for place, tile in enumerate(tiles):
            here = turned[0 : tile.size, place * rows : (place + 1) * rows]
            data = made[:, place * TILE : place * TILE + tile.size]
            nisa.nc_transpose(dst=here, data=data, engine=nisa.engine.tensor)
        whole = sum(tile.size == TILE for tile in tiles) * rows
        engine = nisa.engine.vector if vector else nisa.engine.scalar
        if whole:
            nisa.tensor_copy(dst=held[:, 0:whole], src=turned[:, 0:whole], engine=engine)
        if whole < held.shape[1]:
            rest = slice(0, tiles[-1].size)
            nisa.tensor_copy(dst=held[rest, whole:], src=turned[rest, whole:], engine=engine)

    def _sum(self, held: Any, tiles: Sequence[KeyTile], sums: Any, begun: bool) -> None:
        """Add the weighted values of some keys."""
        rows = self.block.count
        for place, tile in enumerate(tiles):
            stationary = held[0 : tile.size, place * rows : (place + 1) * rows]
            nisa.nc_matmul(dst=sums[:, 0, :], stationary=stationary, moving=tile.values, accumulate=begun or place > 0)

    def _finish(self, sums: Any) -> None:
        """Sums of all sections so far, and after the last one the result."""
        if self.last and sums is not None and self.block.totals is None:
            self.block.totals = sums  # one section: from PSUM at once
        else:
            keep(self.block, [] if sums is None else [(0, sums)], self.shrink)
        if self.last:
            finish(self.block)


def bias_of(largest: Any, scale: float) -> Any:
    """What is added to scaled scores, from the largest score of each query, ``(queries, 1)``."""
    bias = st.sbuf(largest.shape, nl.float32)
    nisa.tensor_scalar(dst=bias, data=largest, op0=nl.maximum, operand0=LOWEST, op1=nl.multiply, operand1=-scale)
    return bias


def _nothing() -> None:
    """The first stages of a step that waits for others."""


def limits(block: Block, segment: Segment) -> tuple[Any, Any]:
    """For each query the first key that it sees and the one after the last, ``(queries, 1)`` float32 each."""
    call, rows = block.call, block.count
    sight, known = call.sight, call.sight.limits(segment)
    first, place = call.constants.filled(0.0), segment.first
    stop = sight.used if place is None else call.constants.filled(float(segment.length))
    if known.first is not None:
        first = _column(block, known.first, sight.behind)
    elif sight.window and place is not None:
        first = block.position(1 - sight.window - place)
    if known.stop is not None:
        stop = _column(block, known.stop, sight.behind)
    elif sight.causal and place is not None:
        stop = block.position(sight.shift + 1 - place)
    if segment.prior and sight.least is not None:
        first = _larger(first, sight.least)
    return first[0:rows, :], stop[0:rows, :]


def _larger(one: Any, other: Any) -> Any:
    made = st.sbuf(one.shape, nl.float32)
    nisa.tensor_tensor(dst=made, data1=one, data2=other, op=nl.maximum)
    return made


def _column(block: Block, limit: Any, behind: Any) -> Any:
    """A number for each query, ``(queries, 1)``, less what is behind."""
    column = st.load(limit[block.head if limit.shape[0] > 1 else 0, block.span])
    if behind is None:
        return column
    made = st.sbuf(column.shape, nl.float32)
    nisa.tensor_tensor(dst=made, data1=column, data2=behind[0 : block.count, :], op=nl.subtract)
    return made
