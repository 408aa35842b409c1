"""Putting the instructions of segments into another order, with everything that counts positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop


class NewOrder(NamedTuple):
    """A segment in its new order.

    Attributes:
        walk: position of its first instruction in ``program.body.walk()``.
        order: original positions in the segment.
        syncs: one for each place, or None for a program that is not scheduled yet.
    """

    walk: int
    order: Sequence[int]
    syncs: Sequence[Sync] | None


def reordered(program: Program, orders: Mapping[tuple[int, int], NewOrder]) -> Program:
    """The program with the new order of each segment, by ``id(block)`` and first position in its items.

    Edges get new positions; the instructions of an ordered region may be apart now, so that edges keep their order.
    """
    moved = {new.walk + old: new.walk + place for new in orders.values() for place, old in enumerate(new.order)}
    regions = {pair for first, after in program.fences for pair in pairwise(range(first, after))}
    edges = sorted((moved[producer], moved[consumer]) for producer, consumer in {*program.edges, *regions})
    return replace(program, body=_block(program.body, orders), edges=edges, fences=[])


def _block(block: Block, orders: Mapping[tuple[int, int], NewOrder]) -> Block:
    items: list[Issued | ForLoop | WhileLoop] = []
    syncs: list[Sync | None] = []
    position = 0
    while position < len(block.items):
        item = block.items[position]
        if isinstance(item, Issued):
            new = orders[id(block), position]
            items += [block.items[position + offset] for offset in new.order]
            syncs += new.syncs or ()
            position += len(new.order)
        else:
            items.append(replace(item, body=_block(item.body, orders)))
            syncs.append(None)
            position += 1
    return Block(list(block.buffers), items, syncs if any(syncs) else None)
