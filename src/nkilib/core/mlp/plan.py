"""Who computes what of an MLP, and how many tokens at once."""

from __future__ import annotations

from dataclasses import dataclass

import nki.language as nl
from nkilib.streaming import ceil_div, share, size, spans

_TOGETHER = 512
"""Tokens that stay in SBUF together at most: columns of one product."""

_ROOM = 176 * 1024
"""Bytes of a partition for those tokens: their features, their inner features and their rows while they are loaded."""

_MANY = 256
"""Tokens, of which more are divided among the cores; of fewer, the weights are."""


_UNIT = 16
"""Features that halves are multiples of, so that runs of HBM stay long."""


@dataclass(frozen=True)
class Plan:
    """The part of one core.

    Attributes:
        rows: tokens, in blocks that stay in SBUF together.
        inner: inner features that it computes.
        parts: all inner features, as the second product contracts them: those of each core, if they exchange them.
        columns: of the result that it computes.
        owns: whether the rows are this core's alone, or this core is the first of those that have them.
    """

    rows: list[slice]
    inner: slice
    parts: list[slice]
    columns: slice
    owns: bool = True

    @property
    def slots(self) -> int:
        """Tiles of inner features that cores exchange; 0 if they do not."""
        return max(ceil_div(size(part), nl.tile_size.pmax) for part in self.parts) if len(self.parts) > 1 else 0


def planned(tokens: int, features: int, inner: int, itemsize: int, row: int) -> Plan:
    """The part of this core, of as many as the launch has.

    Args:
        itemsize: bytes of a feature, and of an inner one.
        row: features of a token that are loaded at once.
    """
    tiles = ceil_div(features, nl.tile_size.pmax) + ceil_div(inner, nl.tile_size.pmax)
    most = _TOGETHER
    while most > 1 and itemsize * (tiles * most + 2 * row) > _ROOM:
        most //= 2
    cores, core = nl.num_programs(0), nl.program_id(0)
    whole, columns = slice(0, inner), slice(0, features)
    if cores == 1:
        return Plan(_blocks(slice(0, tokens), most), whole, [whole], columns)
    if tokens > _MANY:
        mine = share(spans(tokens, nl.tile_size.pmax))
        rows = _blocks(slice(mine[0].start, mine[-1].stop), most)
        return Plan(rows, whole, [whole], columns)
    rows, columns = _blocks(slice(0, tokens), most), _halves(features)[core]
    if inner <= nl.tile_size.pmax:
        return Plan(rows, whole, [whole], columns, core == 0)
    return Plan(rows, _halves(inner)[core], _halves(inner), columns, core == 0)


def _halves(count: int) -> list[slice]:
    """Two nearly equal parts."""
    middle = min(count, ceil_div(count, 2 * _UNIT) * _UNIT)
    return [slice(0, middle), slice(middle, count)]


def _blocks(rows: slice, most: int) -> list[slice]:
    """Blocks of nearly equal size, in whole tiles of 128 tokens."""
    pmax = nl.tile_size.pmax
    count = ceil_div(size(rows), most)
    step = ceil_div(size(rows), count)
    step = ceil_div(step, pmax) * pmax if most >= pmax else step
    return [slice(rows.start + part.start, rows.start + part.stop) for part in spans(size(rows), step)]
