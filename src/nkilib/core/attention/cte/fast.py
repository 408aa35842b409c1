"""Prefill attention whose exponentials are taken of the scores as they are, with keys on partitions.

Weights may be scaled by any number for each query, as long as none of them leaves the range of float32: the largest
score is taken off for that reason alone. Here nothing is taken off. The sums tell afterwards whether that was right,
and the queries for which it was not are computed again (`cte_schedule`).

A bank of PSUM takes the scores of several tiles of keys and some queries each; one instruction makes weights of the
whole bank, in SBUF, where they are stationary operands of the second product as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import e, exp
from typing import Any, NamedTuple

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.block import BANK, Block, Part, common
from nkilib.core.attention.cte.operands import PRODUCTS, TILE, Head, KeyTile
from nkilib.core.attention.cte.results import finish, keep
from nkilib.core.attention.pipeline import Step


class Piece(NamedTuple):
    """Scores of a tile of keys and some queries in a bank.

    Attributes:
        tile: keys.
        columns: queries, counted from the first one of the block.
        at: first column of the bank.
    """

    tile: KeyTile
    columns: slice
    at: int

    @property
    def place(self) -> slice:
        """Columns of the bank."""
        return slice(self.at, self.at + st.size(self.columns))

    def within(self, columns: slice) -> slice:
        """Columns of the bank that some of the queries have."""
        first = self.at - self.columns.start
        return slice(first + columns.start, first + columns.stop)


@dataclass
class Columns:
    """At most 512 queries and the keys of a section.

    Attributes:
        block: the queries.
        keys: in SBUF.
        parts: of the section.
        last: whether no section follows.
        banks: of PSUM, in which the tiles of queries have their sums side by side.
        sums: by the number of the tile of queries, ``(queries, d + 1)``, the last column of which sums the weights.
    """

    block: Block
    keys: Head
    parts: list[Part]
    last: bool
    banks: list[Any] = field(default_factory=list)
    sums: dict[int, Any] = field(default_factory=dict)

    def first(self) -> Iterator[Step]:
        """Nothing comes before the weights."""
        return iter(())

    def second(self) -> Iterator[Step]:
        """Steps from the scores to the sums of values, and to the result."""
        every = self.block.call.plan["vector"]
        for number, bank in enumerate(self._banks()):
            made = st.sbuf((bank[0].tile.size, bank[-1].place.stop), PRODUCTS)
            vector = every > 0 and number % every == every - 1
            yield Step((partial(self._weigh, bank, made, vector), partial(self._sum, bank, made)))
        yield Step((_nothing, self._finish))

    def _banks(self) -> Iterator[list[Piece]]:
        """Pieces bank by bank; those of a bank have as many keys each, of one segment."""
        bank: list[Piece] = []
        for tile, columns in self._tiles():
            width = bank[-1].place.stop if bank else 0
            alike = not bank or (bank[0].tile.size == tile.size and bank[0].tile.segment is tile.segment)
            if width + st.size(columns) > BANK or not alike:
                yield bank
                bank, width = [], 0
            bank.append(Piece(tile, columns, width))
        if bank:
            yield bank

    def _tiles(self) -> Iterator[tuple[KeyTile, slice]]:
        """Tiles of keys, and the queries among which are all that see them."""
        block = self.block
        for segment, keys in self.parts:
            for tile in self.keys.tiles(segment, common(keys, block.visible(segment))):
                seen = block.call.sight.queries(tile, block.span)
                if st.size(seen):
                    yield tile, slice(seen.start - block.start, seen.stop - block.start)

    def _weigh(self, bank: list[Piece], made: Any, vector: bool) -> None:
        """The exponentials of the scores of a bank, 0 where a query does not see the key."""
        call, scores = self.block.call, st.psum(made.shape)
        for piece in bank:
            queries = self.block.queries[:, piece.columns]
            nisa.nc_matmul(dst=scores[:, piece.place], stationary=piece.tile.keys, moving=queries)
        compute = _powers if vector else _exponentials
        if bank[0].tile.segment.prior:
            for piece in bank:
                number = piece.tile.start // TILE
                unused = call.sight.unused[0 : piece.tile.size, number : number + 1]
                compute(made[:, piece.place], scores[:, piece.place], call.scale, unused)
        else:
            compute(made, scores, call.scale, None)
        for piece in bank:
            first = self.block.start + piece.columns.start
            call.sight.hide(made[:, piece.place], piece.tile, slice(first, first + st.size(piece.columns)))

    def _sum(self, bank: list[Piece], made: Any) -> None:
        """Add the weighted values of the keys of a bank."""
        for piece in bank:
            for columns in self.block.tiles:
                if not st.size(common(columns, piece.columns)):
                    continue
                begun = columns.start // TILE in self.sums
                stationary = made[:, piece.within(columns)]
                into = self._sums_of(columns)
                nisa.nc_matmul(dst=into, stationary=stationary, moving=piece.tile.values, accumulate=begun)

    def _sums_of(self, columns: slice) -> Any:
        """Where the sums of a tile of queries are."""
        place, width = columns.start // TILE, self.block.call.features + 1
        bank, at = divmod(place, BANK // width)
        while len(self.banks) <= bank:
            count = min(BANK // width, len(self.block.tiles) - len(self.banks) * (BANK // width))
            self.banks.append(st.psum((TILE, count, width)))
        self.sums[place] = self.banks[bank][0 : st.size(columns), at, :]
        return self.sums[place]

    def _finish(self) -> None:
        """Sums of all sections so far, and after the last one the result."""
        keep(self.block, list(self._whole()))
        if self.last:
            finish(self.block)

    def _whole(self) -> Iterator[tuple[int, Any]]:
        """Sums bank by bank, or tile by tile where a bank has unwritten parts."""
        place = 0
        for bank in self.banks:
            tiles = range(place, place + bank.shape[1])
            sums = [self.sums.get(tile) for tile in tiles]
            if all(each is not None and each.shape[0] == TILE for each in sums):
                yield place, bank
            else:
                alone = ((tile, each) for tile, each in zip(tiles, sums, strict=True) if each is not None)
                yield from ((tile, bank[0 : each.shape[0], tile - place : tile - place + 1, :]) for tile, each in alone)
            place += bank.shape[1]


def _exponentials(made: Any, scores: Any, scale: float, unused: Any) -> None:
    """Weights by Scalar.

    Args:
        unused: for each key 0, or the lowest number if it is not used; None if all are.
    """
    if unused is None:
        nisa.activation(dst=made, op=nl.exp, data=scores, scale=scale)
    else:
        nisa.activation(dst=made, op=nl.exp, data=scores, scale=scale, bias=unused)


def _powers(made: Any, scores: Any, scale: float, unused: Any) -> None:
    """Weights by Vector: powers of e, or of ``e**scale`` where the scale leaves no room for what is added."""
    if unused is None:
        nisa.tensor_scalar(
            dst=made, data=scores, op0=nl.multiply, operand0=scale, op1=nl.power, operand1=e, reverse1=True
        )
    else:
        base = exp(scale)
        nisa.tensor_scalar(
            dst=made, data=scores, op0=nl.add, operand0=unused, op1=nl.power, operand1=base, reverse1=True
        )


def _nothing() -> None:
    """The first stage of a step that waits for others."""
