"""How much one group may hold: live tiles of a row in SBUF, inputs and outputs, operations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nki.graph.ir import Op, Value
from nki.graph.passes.regions import outside_values
from nki.target.model import Target

_MOST_OPS = 160
_MOST_TENSORS = 40
_HEAD_ROOM = 0.5
"""Part of SBUF that the tiles of a row may take: the rest is for the next row, which is loaded meanwhile."""
_WIDE = 4  # bytes; elements are computed in 32 bits


def fits(
    members: Sequence[Op],
    kind: str,
    shape: Sequence[int],
    rows: Sequence[int],
    target: Target,
) -> bool:
    """True if a kernel can hold these operations. Elementwise kernels choose the length of their tiles themselves."""
    work = [op for op in members if op.name != "constant"]
    if len(work) > _MOST_OPS:
        return False
    inside = {value for op in members for value in op.results}
    inputs = {v for op in members for v in outside_values(op) if v not in inside}
    if len(inputs) > _MOST_TENSORS:
        return False
    if kind != "rows":
        return True
    length = prod(shape[dim] for dim in rows)
    return live_tiles(work, tuple(shape)) * length * _WIDE <= _HEAD_ROOM * target.sbuf.usable_bytes_per_partition


def live_tiles(work: Sequence[Op], shape: tuple[int, ...]) -> int:
    """Most tiles of this shape that are needed at once, if operations run in order and inputs are loaded when used."""
    last: dict[Value, int] = {}
    for position, op in enumerate(work):
        for value in op.operands:
            last[value] = position
    live: set[Value] = set()
    most = 0
    for position, op in enumerate(work):
        live.update(v for v in (*op.operands, *op.results) if v.type.shape == shape)
        most = max(most, len(live))
        live = {value for value in live if last.get(value, -1) > position}
    return most
