"""Segments: the runs of instructions between the loops of a block."""

from __future__ import annotations

from collections.abc import Iterator

from nki.spec.program import Block, Issued


def segments(block: Block) -> Iterator[tuple[int, int]]:
    """``(first, after)`` positions in ``block.items`` of every maximal run of instructions; none is empty."""
    first = 0
    for position, item in enumerate(block.items):
        if not isinstance(item, Issued):
            if position > first:
                yield first, position
            first = position + 1
    if len(block.items) > first:
        yield first, len(block.items)
