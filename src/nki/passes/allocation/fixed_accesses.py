"""Accesses to tensors with explicit addresses in program order, as boxes of partitions and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from nki.core.tensor import Buffer, View
from nki.spec.instruction import Instruction
from nki.spec.program import Block, Issued

Box = tuple[int, int, int, int]
"""First partition and the one after the last, first byte and the one after the last, of the whole memory."""

Loop = tuple[int, int]
"""First and last position of a loop."""


class FixedAccess(NamedTuple):
    """One access; `certain` if every byte of the box is touched; `loop` is the outermost one around it."""

    position: int
    tensor: int
    box: Box
    writes: bool
    certain: bool
    loop: Loop | None


class AccessedTensor(NamedTuple):
    """Whose accesses are wanted: its number, its place, and the list that takes them."""

    number: int
    place: Box
    accesses: list[FixedAccess]


def collect(block: Block, tensors: Mapping[int, AccessedTensor]) -> None:
    """Append the accesses to tensors, by id of their buffers; of an instruction the reads come first.

    A loop is passed twice, since a trip may need what the trip before has left.
    """
    _AccessCollector(tensors).block(block, None)


def place_in_memory(buffer: Buffer) -> Box:
    """All of a buffer with an explicit address."""
    partition, byte = buffer.address or (0, 0)
    return partition, partition + buffer.partitions, byte, byte + buffer.row_bytes


class _AccessCollector:
    def __init__(self, tensors: Mapping[int, AccessedTensor]) -> None:
        self._tensors = tensors
        self._position = 0

    def block(self, block: Block, loop: Loop | None) -> None:
        for item in block.items:
            if isinstance(item, Issued):
                self._issued(item, loop)
                self._position += 1
                continue
            first = self._position
            outermost = loop or (first, max(first, first + sum(1 for _ in item.body.walk()) - 1))
            self.block(item.body, outermost)
            self._position = first
            self.block(item.body, outermost)

    def _issued(self, issued: Issued, loop: Loop | None) -> None:
        arguments = issued.arguments
        places, accumulate = _tensor_places(issued.instruction)
        adds = accumulate is not None and arguments[accumulate] is True
        writes: list[View] = []
        for place, is_read, is_written in places:
            value = arguments[place]
            for view in (value,) if type(value) is View else value if type(value) is tuple else ():
                if view.dynamic is not None and isinstance(view.dynamic.indices, View):
                    self._add(view.dynamic.indices, False, loop)
                if view.buffer.id in self._tensors:
                    if is_read or adds:
                        self._add(view, False, loop)
                    if is_written:
                        writes.append(view)
        for view in writes:
            self._add(view, True, loop)

    def _add(self, view: View, writes: bool, loop: Loop | None) -> None:
        tensor = self._tensors.get(view.buffer.id)
        if tensor is not None:
            box, certain = _box(view, tensor.place)
            tensor.accesses.append(FixedAccess(self._position, tensor.number, box, writes, certain, loop))


@cache  # one for each declared instruction
def _tensor_places(instruction: Instruction[Any]) -> tuple[tuple[tuple[int, bool, bool], ...], int | None]:
    """``(position, read, written)`` of the tensor arguments, and the position of the one that says "add to dst"."""
    operands = list(instruction.operands.items())
    places = tuple((at, o.reads, o.writes) for at, (_, o) in enumerate(operands) if o.is_tensor)
    return places, next((at for at, (name, _) in enumerate(operands) if name == "accumulate"), None)


def _box(view: View, place: Box) -> tuple[Box, bool]:
    """The box around a view, the whole buffer if its address is dynamic, and whether the view fills it."""
    buffer, dtype, shape, strides, offset, dynamic = view
    if dynamic is not None:
        return place, False
    size = dtype.itemsize
    row, low = divmod(offset, buffer.row_bytes // size)
    first = place[0] + row
    start = place[2] + low * size
    if len(shape) == 2 and strides[1] == 1:
        return (first, first + shape[0], start, start + shape[1] * size), True
    below = above = 0
    elements = 1
    for count, stride in zip(shape[1:], strides[1:], strict=True):
        if stride < 0:
            below += (count - 1) * stride
        elif stride:
            above += (count - 1) * stride
        elements *= count if stride else 1
    span = above - below + 1
    start += below * size
    return (first, first + shape[0], start, start + span * size), elements == span
