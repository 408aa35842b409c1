"""Which bytes an instruction touches, from lists of all its elements; one bit for each byte of a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.register import VirtualRegister
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View
from nki.spec.program import Issued, Program


@dataclass(frozen=True)
class Access:
    """Bytes of one memory.

    Attributes:
        space: "sbuf", "psum", the number of a tensor in device memory, or a tensor on chip that has no place yet.
        partitions: a bit for each; device memory has one.
        mask: a bit for each byte of these partitions.
        base: where the tensor begins.
        exact: False if a dynamic address chooses among these bytes.
    """

    space: Any
    partitions: int
    mask: int
    base: int
    exact: bool

    def meets(self, other: Access) -> bool:
        return self.space == other.space and bool(self.partitions & other.partitions and self.mask & other.mask)


@dataclass(frozen=True)
class Touches:
    """All that an instruction reads and writes; `uses` and `sets` are registers and state by name."""

    reads: list[Access]
    writes: list[Access]
    uses: set[Any]
    sets: set[Any]

    def conflicts(self, other: Touches) -> bool:
        """Whether the order of two instructions matters."""
        return (
            bool(self.sets & (other.uses | other.sets) or self.uses & other.sets)
            or any(a.meets(b) for a in self.writes for b in (*other.reads, *other.writes))
            or any(a.meets(b) for a in self.reads for b in other.writes)
        )


def touches(issued: Issued, program: Program) -> Touches:
    """What an instruction of a program touches."""
    found = Touches([], [], set(), set())
    operands = issued.instruction.operands
    adds = "accumulate" in operands and issued.arguments.accumulate is not False
    for name, view in issued.views():
        if operands[name].reads or (adds and operands[name].writes):
            found.reads.append(access(view, program))
        if operands[name].writes:
            found.writes.append(access(view, program))
        index = view.dynamic.indices if view.dynamic is not None else None
        if isinstance(index, VirtualRegister):
            found.uses.add(("register", index.id))
        elif index is not None:
            found.reads.append(access(index, program))
    for name, value in zip(operands, issued.arguments, strict=True):
        if isinstance(value, VirtualRegister):
            (found.sets if operands[name].writes else found.uses).add(("register", value.id))
            if operands[name].reads:
                found.uses.add(("register", value.id))
    effects = issued.instruction.effects(issued.arguments)
    found.sets.update((effect, issued.engine) if effect in ("accumulator", "random") else effect for effect in effects)
    if "fence" not in effects:
        found.uses.add("fence")
    if "rendezvous" not in effects and any(isinstance(a.space, int) for a in (*found.reads, *found.writes)):
        found.uses.add("rendezvous")
    return found


def access(view: View, program: Program) -> Access:
    """The bytes of a view."""
    buffer, size = view.buffer, view.dtype.itemsize
    row = buffer.row_bytes // size
    if not buffer.on_chip:
        return Access(buffer.id, 1, _mask(_elements(view, view.offset, view.shape, view.strides, row), size, row), 0,
                      view.dynamic is None)  # fmt: skip
    place = buffer.address or (program.placement or {}).get(buffer.id)
    partition, base = place or (0, 0)
    space: Any = ("own", buffer.id) if place is None else str(view.region)
    first, free = divmod(view.offset, row)
    rows = [first + k * (view.strides[0] // row) for k in range(view.shape[0])]
    if isinstance(view.dynamic, VectorOffset) or _picks_partitions(view, row):
        rows = list(range(buffer.partitions))
    mask = _mask(_elements(view, free, view.shape[1:], view.strides[1:], row), size, row) << base
    bits = sum(1 << partition + r for r in set(rows))
    return Access(space, bits, mask, base, view.dynamic is None)


def _picks_partitions(view: View, row: int) -> bool:
    return isinstance(view.dynamic, ScalarOffset) and view.dynamic.scale % row == 0 and view.dynamic.scale != 0


def _elements(view: View, start: int, shape: Any, strides: Any, row: int) -> np.ndarray:
    """Numbers of all elements in a row that a view can touch."""
    grid = np.array([start])
    for axis, (count, stride) in enumerate(zip(shape, strides, strict=True)):
        if not (isinstance(view.dynamic, VectorOffset) and axis == 0 and not view.on_chip):
            grid = np.unique((grid[:, None] + np.arange(count) * stride).reshape(-1))
    dynamic = view.dynamic
    if dynamic is None or (view.on_chip and _picks_partitions(view, row)):
        return grid
    if isinstance(dynamic, FreeIndirection) or not dynamic.scale:
        return np.arange(row)
    scale = abs(dynamic.scale)
    moved = grid[None, :] + scale * np.arange(-(row // scale) - 1, row // scale + 2)[:, None]
    inside = (moved.min(axis=1) >= 0) & (moved.max(axis=1) < row)
    return np.unique(moved[inside].reshape(-1))


def _mask(elements: np.ndarray, size: int, row: int) -> int:
    bits = np.zeros((row, size), bool)
    bits[elements[(elements >= 0) & (elements < row)]] = True
    return int.from_bytes(np.packbits(bits.reshape(-1), bitorder="little").tobytes(), "little")
