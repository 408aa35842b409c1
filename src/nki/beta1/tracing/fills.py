"""Fills: tiles of nl.zeros and the like whose value nobody sees, because the next instruction overwrites all of it.

Kernels declare all their tiles at the top, often with zeros. A fill that is not needed would keep the tile on chip from
there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nki.core.tensor import View
from nki.spec.engine import oob_mode
from nki.spec.program import Block, Issued


def overwritten(fills: Iterable[Issued], body: Block) -> set[int]:
    """The ids of the fills that another instruction replaces before anything reads the tile.

    Tiles with an address keep theirs: other tiles may have the same bytes.
    """
    waiting = {id(fill) for fill in fills if fill.arguments.dst.buffer.address is None}
    found: set[int] = set()
    if waiting:
        _walk(body, waiting, found)
    return found


def _walk(body: Block, waiting: set[int], found: set[int]) -> None:
    """Note the fills of a body that are replaced; a loop of the device may have no trip, and may have several."""
    filled: dict[int, Issued] = {}
    for item in body.items:
        if not isinstance(item, Issued):
            for inner in item.body.walk() if filled else ():
                _look(inner, filled, set())
            _walk(item.body, waiting, found)
            continue
        if filled:
            _look(item, filled, found)
        if id(item) in waiting:
            filled[id(item.arguments.dst.buffer)] = item


def _look(issued: Issued, filled: dict[int, Issued], found: set[int]) -> None:
    """Forget the tiles that an instruction touches, and note the fills that it replaces."""
    for buffer in _read(issued):
        filled.pop(buffer, None)
    skips = getattr(issued.arguments, "oob_mode", None) is oob_mode.skip
    for view in issued.written():
        fill = filled.pop(id(view.buffer), None)
        if fill is not None and not skips and view.dynamic is None and view.nbytes == view.buffer.nbytes:
            found.add(id(fill))


def _read(issued: Issued) -> Iterator[int]:
    """The ids of the buffers that an instruction reads; a product reads what it adds to."""
    operands, arguments = issued.instruction.operands, issued.arguments
    adds = "accumulate" in operands and arguments.accumulate is not False
    for name, view in issued.views():
        if operands[name].reads or operands[name].partial or (adds and operands[name].writes):
            yield id(view.buffer)
        if view.dynamic is not None and isinstance(view.dynamic.indices, View):
            yield id(view.dynamic.indices.buffer)
