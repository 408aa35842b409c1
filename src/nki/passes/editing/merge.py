"""Merging: instructions go whose results other ones have left in another tensor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nki.core.tensor import Buffer
from nki.passes.editing.remove import kept_items
from nki.passes.editing.rewrite import renamed
from nki.spec.program import Block, Issued, Program


def merged(program: Program, dropped: Collection[int], names: Mapping[int, Buffer]) -> Program:
    """The program without some instructions; whoever read what they wrote reads other tensors.

    Args:
        dropped: ids of the records of the instructions that go.
        names: for a tensor that goes with them, by id, the one with the same bytes.
    """
    kept = kept_items(program, lambda item: id(item) not in dropped)
    return replace(kept, body=_renamed(kept.body, names))


def _renamed(block: Block, names: Mapping[int, Buffer]) -> Block:
    """The block without the tensors that go."""
    items = [
        renamed(item, names) if isinstance(item, Issued) else replace(item, body=_renamed(item.body, names))
        for item in block.items
    ]
    return Block([buffer for buffer in block.buffers if buffer.id not in names], items)
