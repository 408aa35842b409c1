"""Fills: tiles of nl.zeros and the like whose value nobody sees, because the next instruction overwrites all of it.

Kernels declare all their tiles at the top, often with zeros. A fill that is not needed would keep the tile on chip from
there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nki.core.tensor import View
from nki.spec.engine import oob_mode
from nki.spec.program import Issued


def overwritten(fills: Iterable[Issued], items: Iterable[Issued]) -> set[int]:
    """The ids of the fills that another instruction replaces before anything reads the tile.

    Tiles with an address keep theirs: other tiles may have the same bytes.
    """
    waiting = {id(fill): fill for fill in fills if fill.arguments.dst.buffer.address is None}
    filled: dict[int, Issued] = {}
    found: set[int] = set()
    for issued in items:
        if filled:
            _look(issued, filled, found)
        if id(issued) in waiting:
            filled[id(issued.arguments.dst.buffer)] = issued
    return found


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
