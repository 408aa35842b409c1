"""Versions of a tile: one that is filled several times, each time all of it, becomes a tensor for each time.

Before: ``load t; use t; load t; use t``. After: ``load t; use t; load t.1; use t.1``. What the second load brings no
longer has to wait for the readers of the first one, and the first one may be read again later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nki.passes.editing.rewrite import Edit, rewritten
from nki.spec.program import Block, Program


def with_versions(program: Program, filled: Mapping[int, Sequence[tuple[Block, int]]]) -> Program:
    """The program with a tensor for each time that a tile is filled.

    Args:
        filled: for each such tile, by its id, the blocks and the places in them of what fills it, in their order.
    """
    tiles = {buffer.id: buffer for buffer in program.body.all_buffers()}
    number = max(buffer.id for buffer in (*program.inputs, *tiles.values()))
    edits: dict[int, Edit] = {}
    for tile, places in filled.items():
        for version, (block, place) in enumerate(places[1:], 1):
            number += 1
            new = replace(tiles[tile], id=number, name=f"{tiles[tile].name}.{version}")
            edit = edits.setdefault(id(block), Edit())
            edit.buffers.append(new)
            edit.renames.setdefault(place, {})[tile] = new
    return rewritten(program, edits)
