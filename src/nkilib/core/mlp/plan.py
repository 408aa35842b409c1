"""Who computes what of an MLP, and how many tokens at once."""

from __future__ import annotations

from dataclasses import dataclass

import nki.language as nl
from nkilib.streaming import ceil_div, share, size, spans

_TOGETHER = 512
"""Tokens that stay in SBUF together at most: columns of one product."""

_ROOM = 160 * 1024
"""Bytes of a partition for those tokens: their features, their inner features and their rows while they are loaded."""

_MANY = 256
"""Tokens, of which more are divided among the cores; of fewer, the weights are."""


@dataclass(frozen=True)
class Plan:
    """The part of one core.

    Attributes:
        rows: tokens, in blocks that stay in SBUF together.
        inner: inner features that it computes.
        columns: of the result that it computes.
        slots: tiles of 128 inner features that each core computes, if the cores exchange them; otherwise 0.
        owns: whether the rows are this core's alone, or this core is the first of those that have them.
    """

    rows: list[slice]
    inner: slice
    columns: slice
    slots: int = 0
    owns: bool = True


def planned(tokens: int, features: int, inner: int, itemsize: int) -> Plan:
    """The part of this core, of as many as the launch has."""
    pmax, cores, core = nl.tile_size.pmax, nl.num_programs(0), nl.program_id(0)
    every = Plan(_blocks(slice(0, tokens), features, inner, itemsize), slice(0, inner), slice(0, features))
    if cores == 1:
        return every
    if tokens > _MANY:
        mine = share(spans(tokens, pmax))
        return Plan(_blocks(slice(mine[0].start, mine[-1].stop), features, inner, itemsize), every.inner, every.columns)
    columns = _half(features, core)
    if inner <= pmax:
        return Plan(every.rows, every.inner, columns, owns=core == 0)
    return Plan(every.rows, _half(inner, core), columns, ceil_div(ceil_div(inner, pmax), 2), core == 0)


def _half(count: int, core: int) -> slice:
    """Half of the tiles of 128; the first core may have one more."""
    middle = min(count, ceil_div(ceil_div(count, nl.tile_size.pmax), 2) * nl.tile_size.pmax)
    return slice(middle, count) if core else slice(0, middle)


def _blocks(rows: slice, features: int, inner: int, itemsize: int) -> list[slice]:
    """Blocks of nearly equal size, in whole tiles of 128 tokens."""
    pmax, most = nl.tile_size.pmax, _TOGETHER
    while most > 1 and _bytes(most, features, inner, itemsize) > _ROOM:
        most //= 2
    count = ceil_div(size(rows), most)
    step = ceil_div(size(rows), count)
    step = ceil_div(step, pmax) * pmax if most >= pmax else step
    return [slice(rows.start + part.start, rows.start + part.stop) for part in spans(size(rows), step)]


def _bytes(tokens: int, features: int, inner: int, itemsize: int) -> int:
    pmax = nl.tile_size.pmax
    tiles = ceil_div(features, pmax) + ceil_div(inner, pmax)
    return itemsize * (tiles * tokens + 2 * features)
