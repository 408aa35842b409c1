"""Attention of few queries over many keys, round by round: each round by itself, then all put together.

A round gives for every query column, with scores ``s_k`` of its keys and their values ``v_k``,

    n = -max s_k        l = sum exp(s_k + n)        o = sum exp(s_k + n) v_k

and several rounds are one with ``N = min n_i, L = sum l_i exp(N - n_i), O = sum o_i exp(N - n_i)``; the result is
O / L. What another core found is a round as well. A sink adds ``exp(sink + N)`` to L.

Keys lie on the partitions of scores. So no product needs transposed scores: keys are the stationary operand of the
first, values that of the second, and the result has its head size on partitions, as the next product wants it. The
Tensor engine also adds what drops a key (a large negative number) and what the maximum is, by a product for each bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.attention.decode_mask import piece, spread
from nkilib.streaming import filled, psum, sbuf

_DROPPED = -1.0e30
"""What is added to the score of a key that does not count."""
_LEAST_MAXIMUM = -1.0e20
"""Maximum where no key counts; far from the score of a dropped one, so that its weight is 0."""
BANK = 512
"""float32 of a bank of PSUM."""


class Constants:
    """Matrices that the Tensor engine moves and adds with."""

    def __init__(self) -> None:
        rows = int(nl.tile_size.pmax)
        self.identity = nl.shared_identity_matrix(rows, nl.float32)
        self.ones = sbuf((rows, rows), nl.bfloat16)
        # exp(0): the table of the exponential is loaded before a score waits for it
        nisa.activation(dst=self.ones, op=nl.exp, data=filled((rows, rows), nl.bfloat16, 0.0))
        self.dropped = sbuf((rows, rows), nl.bfloat16)
        nisa.tensor_scalar(dst=self.dropped, data=self.identity, op0=nl.multiply, operand0=_DROPPED)
        self._wide: Any = None

    def ones_of(self, dtype: Any) -> Any:
        """Ones that are multiplied with tiles of a dtype."""
        if dtype != nl.float32:
            return self.ones
        self._wide = filled(tuple(self.ones.shape), nl.float32, 1.0) if self._wide is None else self._wide
        return self._wide


@dataclass
class Piece:
    """Tiles of one part of the keys.

    Attributes:
        keys: ``keys(i, t)`` is ``(d, rows)``: tile t of sequence i of the round.
        values: gives ``(rows, sequences, tiles, d)``, loaded when it is first asked for.
        drops: tiles of 0 and 1, ``(rows, sequences, heads, new tokens, tiles)`` or 1: where 1, a key does not count.
        rows: of each tile.
        tiles: those of the part that count here.
    """

    keys: Any
    values: Any
    drops: list[Any]
    rows: int
    tiles: slice


@dataclass
class Round:
    """Keys of some sequences, and their queries.

    Attributes:
        pieces: their tiles of equal rows lie beside each other in banks.
        queries: ``(d, sequences * heads * new tokens)``.
        shape: sequences, heads, new tokens.
    """

    pieces: Sequence[Piece]
    queries: Any
    shape: tuple[int, int, int]

    @property
    def per(self) -> int:
        """Columns of a sequence."""
        return self.shape[1] * self.shape[2]

    @property
    def columns(self) -> int:
        """Columns of all sequences."""
        return self.shape[0] * self.per

    def banks(self) -> list[list[Piece]]:
        """Pieces that share a bank: of equal rows, as many tiles as fit."""
        found: list[list[Piece]] = []
        most, room = BANK // self.columns, 0
        for each in self.pieces:
            start = each.tiles.start
            while start < each.tiles.stop:
                if not room or found[-1][0].rows != each.rows:
                    found.append([])
                    room = most
                stop = min(start + room, each.tiles.stop)
                found[-1].append(Piece(each.keys, each.values, each.drops, each.rows, slice(start, stop)))
                room, start = room - (stop - start), stop
        return found


@dataclass
class Result:
    """What a round found.

    Attributes:
        n: on every one of the d partitions, ``(d, columns)``.
        sums: l, likewise, and o: ``(d, 2, columns)``.
    """

    n: Any
    sums: Any

    @staticmethod
    def of(tile: Any) -> Result:
        """Of a tile ``(d, 3, columns)``."""
        return Result(tile[:, 0, :], tile[:, 1:3, :])

    def copy_to(self, tile: Any) -> None:
        """Into a tile ``(d, 3, columns)``."""
        nisa.tensor_copy(dst=tile[:, 0, :], src=self.n)
        nisa.tensor_copy(dst=tile[:, 1:3, :], src=self.sums)


def attend(work: Round, constants: Constants, head: int) -> Result:
    """A round of at most 128 columns, whose scores PSUM has room for beside its sums; the result is in PSUM."""
    banks = work.banks()
    scores = [_scores(bank, work, constants) for bank in banks]
    lower = _Lower(scores, work.columns, constants)
    n = psum((head, work.columns))
    lower.add(n, first=True)
    weights = [_weights(each, lower, work) for each in scores]
    sums = psum((head, 2, work.columns))
    for place, each in enumerate(weights):
        _add_sums(each, constants, sums[:, 0, :], first=place == 0)
    _add_values(banks, weights, work, sums[:, 1, :])
    return Result(n, sums)


def _scores(bank: list[Piece], work: Round, constants: Constants) -> Any:
    """``(rows, columns, tiles)`` in PSUM: what drops keys, and on top of it the products."""
    rows, tiles = bank[0].rows, sum(_count(each) for each in bank)
    scores, at = psum((rows, work.columns, tiles)), 0
    for each in bank:
        count = _count(each)
        into = scores[:, :, at : at + count]
        for place, drop in enumerate(each.drops):
            moving = spread(piece(drop, each.tiles), (rows, *work.shape, count))
            stationary = constants.dropped[0:rows, 0:rows]
            nisa.nc_matmul(dst=into, stationary=stationary, moving=moving, accumulate=place > 0)
        for i in range(work.shape[0]):
            columns = slice(i * work.per, (i + 1) * work.per)
            for t in range(count):
                key = each.keys(i, each.tiles.start + t)
                nisa.nc_matmul(
                    dst=into[:, columns, t], stationary=key, moving=work.queries[:, columns], accumulate=True
                )
        at += count
    return scores


def _count(each: Piece) -> int:
    return int(each.tiles.stop - each.tiles.start)


class _Lower:
    """``n`` of each column: as two diagonal matrices of bfloat16, whose sum it is exactly.

    It need not be the maximum to the last bit, as long as it is the same wherever it is used.
    """

    def __init__(self, scores: list[Any], columns: int, constants: Constants) -> None:
        self._ones = constants.ones[0:columns]
        lowest = _minus_maximum(scores, columns)
        identity = constants.identity[0:columns, 0:columns]
        self._high, self._low = (sbuf((columns, columns), nl.bfloat16) for _ in range(2))
        nisa.tensor_scalar(dst=self._high, data=identity, op0=nl.multiply, operand0=lowest)
        nisa.scalar_tensor_tensor(
            dst=self._low, data=identity, op0=nl.multiply, operand0=lowest, op1=nl.subtract, operand1=self._high
        )

    def add(self, into: Any, *, first: bool = False) -> None:
        """Add n to each column of ``(rows, columns)`` or ``(rows, columns, tiles)`` in PSUM."""
        ones = self._ones[:, 0 : into.shape[0]]
        for diagonal in (self._high, self._low):
            moving = diagonal if len(into.shape) == 2 else diagonal.expand_dim(2).broadcast(2, into.shape[2])
            nisa.nc_matmul(dst=into, stationary=ones, moving=moving, accumulate=not first)
            first = False


def _minus_maximum(scores: list[Any], columns: int) -> Any:
    """The negative maximum of each column over all banks, ``(columns, 1)``."""
    groups: dict[int, list[Any]] = {}
    for each in scores:
        groups.setdefault(each.shape[0], []).append(each)
    across, at = psum((columns, sum(groups))), 0
    for rows, banks in groups.items():
        highest = _highest(banks, rows, columns)
        nisa.nc_transpose(dst=across[:, at : at + rows], data=highest, engine=nisa.engine.tensor)
        at += rows
    lowest = sbuf((columns, 1), nl.float32)
    nisa.tensor_reduce(dst=lowest, op=nl.maximum, data=across, axis=[1])
    nisa.tensor_scalar(dst=lowest, data=lowest, op0=nl.maximum, operand0=_LEAST_MAXIMUM, op1=nl.multiply, operand1=-1.0)
    return lowest


def _highest(banks: list[Any], rows: int, columns: int) -> Any:
    """The largest score of each partition and column."""
    found = sbuf((rows, columns, len(banks)), nl.float32)
    for place, each in enumerate(banks):
        nisa.tensor_reduce(dst=found[:, :, place], op=nl.maximum, data=each, axis=[2])
    if len(banks) == 1:
        return found[:, :, 0]
    highest = sbuf((rows, columns), nl.float32)
    nisa.tensor_reduce(dst=highest, op=nl.maximum, data=found, axis=[2])
    return highest


def _weights(scores: Any, lower: _Lower, work: Round) -> Any:
    """``exp(score + n)`` of a bank."""
    lower.add(scores)
    wide = work.queries.dtype if work.queries.dtype in (nl.float32, nl.float16) else nl.bfloat16
    weights = sbuf(tuple(scores.shape), wide)
    nisa.activation(dst=weights, op=nl.exp, data=scores)
    return weights


def _add_sums(weights: Any, constants: Constants, into: Any, *, first: bool) -> None:
    """The sums over all keys of a bank, on every partition."""
    rows, columns, tiles = weights.shape
    sums = weights[:, :, 0]
    if tiles > 1:
        sums = sbuf((rows, columns), weights.dtype)
        nisa.tensor_reduce(dst=sums, op=nl.add, data=weights, axis=[2])
    ones = constants.ones_of(weights.dtype)[0:rows, 0 : into.shape[0]]
    nisa.nc_matmul(dst=into, stationary=ones, moving=sums, accumulate=not first)


def _add_values(banks: list[list[Piece]], weights: list[Any], work: Round, into: Any) -> None:
    """The weighted values of all keys."""
    for i in range(work.shape[0]):
        columns, first = slice(i * work.per, (i + 1) * work.per), True
        for bank, tile in zip(banks, weights, strict=True):
            at = 0
            for each in bank:
                for t in range(each.tiles.start, each.tiles.stop):
                    value = each.values()[:, i, t, :]
                    nisa.nc_matmul(
                        dst=into[:, columns], stationary=value, moving=tile[:, columns, at], accumulate=not first
                    )
                    at, first = at + 1, False


class Stack:
    """Rounds that wait to be merged; when there are many, they become one.

    Args:
        head, columns: sizes of what a round finds.
        places: rounds that are kept.
    """

    def __init__(self, head: int, columns: int, places: int = 8) -> None:
        self._shape, self._used = (head, places, 3, columns), 0
        self._tile = sbuf(self._shape, nl.float32)

    def next(self) -> Any:
        """``(d, 3, columns)`` for the n, l and o of the next round."""
        if self._used == self._shape[1]:
            fresh = sbuf(self._shape, nl.float32)
            self._merge(fresh[:, 0])
            self._tile, self._used = fresh, 1
        self._used += 1
        return self._tile[:, self._used - 1]

    def merged(self) -> Any:
        """All rounds as one, ``(d, 3, columns)``."""
        if self._used == 1:
            return self._tile[:, 0]
        head, _, _, columns = self._shape
        total = sbuf((head, 3, columns), nl.float32)
        self._merge(total)
        return total

    def _merge(self, into: Any) -> None:
        head, _, _, columns = self._shape
        n = self._tile[:, 0 : self._used, 0, :]
        least = sbuf((head, 1, columns), nl.float32)
        nisa.tensor_reduce(dst=least, op=nl.minimum, data=n.permute((0, 2, 1)), axis=[2])
        shrink = sbuf((head, self._used, 1, columns), nl.float32)
        nisa.tensor_tensor(dst=shrink, data1=least.broadcast(1, self._used), data2=n, op=nl.subtract)
        nisa.activation(dst=shrink, op=nl.exp, data=shrink)
        shrunk = sbuf((head, self._used, 2, columns), nl.float32)
        kept = self._tile[:, 0 : self._used, 1:3, :]
        nisa.tensor_tensor(dst=shrunk, data1=kept, data2=shrink.broadcast(2, 2), op=nl.multiply)
        nisa.tensor_reduce(dst=into[:, 1:3, :], op=nl.add, data=shrunk.permute((0, 2, 3, 1)), axis=[3])
        nisa.tensor_copy(dst=into[:, 0, :], src=least[:, 0, :])
