"""Tensors with explicit addresses that share bytes: who reads what another one wrote, and who loses its value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nki.passes.allocation.fixed_accesses import AccessedTensor, Box, FixedAccess, collect, place_in_memory
from nki.passes.analysis.liveness import Liveness, Range
from nki.passes.analysis.memory_demand import Demand, demand, memories
from nki.passes.analysis.memory_usage import place_of
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.target.model import Target

_NOBODY = -1


class Sharing(NamedTuple):
    """What the explicit tensors of one memory do to each other.

    Attributes:
        ranges: their live ranges; one that reads what another one wrote also lives from then on.
        lost: ``(tensor, by, position)``: it reads, at that position, bytes where it had a value that another tensor
            with a value of its own has replaced.
    """

    ranges: tuple[Range, ...]
    lost: tuple[tuple[Range, Range, int], ...]


def demands(program: Program, live: Liveness, target: Target) -> tuple[list[Demand], list[Finding]]:
    """What the live buffers ask of SBUF and of PSUM, and a warning for each explicit tensor that loses its value."""
    needs = [demand(memory, live.buffers) for memory in memories(target)]
    shared = sharing(program, [need.explicit for need in needs])
    found = [_finding(*each) for one in shared for each in one.lost]
    return [replace(need, explicit=one.ranges) for need, one in zip(needs, shared, strict=True)], found


def sharing(program: Program, explicit: Sequence[tuple[Range, ...]]) -> list[Sharing]:
    """Follow the bytes of the explicit tensors through a program, given their live ranges memory by memory."""
    accesses: list[list[FixedAccess]] = [[] for _ in explicit]
    tensors = {
        own[number].buffer.id: AccessedTensor(number, place_in_memory(own[number].buffer), into)
        for own, into in zip(explicit, accesses, strict=True)
        for number in _overlapping(own)
    }
    if tensors:
        collect(program.body, tensors)
    return [
        _Bytes(own, into).follow() if into else Sharing(own, ()) for own, into in zip(explicit, accesses, strict=True)
    ]


def _finding(tensor: Range, by: Range, position: int) -> Finding:
    return Finding(
        "memory.alias",
        "warning",
        f"{tensor.buffer.name} is read after {by.buffer.name} has written to the same bytes: "
        f"{_where(tensor)}, {_where(by)}",
        "tensors with explicit addresses share bytes only if one is done before the other begins, or is a part of it",
        "nki/migration/index.rst, Improved allocation API",
        f"move {by.buffer.name} to another address, or use it after the last use of {tensor.buffer.name}",
        by.buffer.location,
        {"tensor": tensor.buffer.name, "by": by.buffer.name, "position": position},
    )


def _where(each: Range) -> str:
    buffer = each.buffer
    partition, byte = buffer.address or (0, 0)
    return (
        f"{buffer.name} has bytes {byte} to {byte + buffer.row_bytes} of partitions {partition} to "
        f"{partition + buffer.partitions} ({place_of(buffer.location)})"
    )


def _overlapping(own: Sequence[Range]) -> list[int]:
    """The tensors that have bytes in common with another one, whenever either lives."""
    if len(own) < 2:
        return []
    pieces, shape = _grid([place_in_memory(each.buffer) for each in own])
    count = np.zeros(shape, np.int32)
    for piece in pieces.values():
        count[piece] += 1
    twice = Counter(place_in_memory(each.buffer) for each in own)
    return [
        n
        for n, each in enumerate(own)
        if twice[place := place_in_memory(each.buffer)] > 1 or count[pieces[place]].max() > 1
    ]


def _grid(boxes: Iterable[Box]) -> tuple[dict[Box, tuple[slice, slice]], tuple[int, int]]:
    """The parts of a grid that boxes cover, and its shape; its lines are where a box begins or ends."""
    different = sorted(set(boxes))
    cuts = np.array(different, np.int64).reshape(-1, 4)
    rows, columns = np.unique(cuts[:, :2]).tolist(), np.unique(cuts[:, 2:]).tolist()
    row = {cut: number for number, cut in enumerate(rows)}
    column = {cut: number for number, cut in enumerate(columns)}
    pieces = {box: (slice(row[box[0]], row[box[1]]), slice(column[box[2]], column[box[3]])) for box in different}
    return pieces, (len(rows), len(columns))


class _Bytes:
    """Which tensor wrote each piece of a memory last, and which one before it; pieces end where an access ends."""

    def __init__(self, own: Sequence[Range], accesses: Sequence[FixedAccess]) -> None:
        self._own = own
        self._accesses = accesses
        self._pieces, shape = _grid(access.box for access in accesses)
        self._owner = np.full(shape, _NOBODY, np.int32)
        self._before = self._owner.copy()
        self._written = [0] * len(own)
        self._ranges = [list(each[1:]) for each in own]
        self._lost: dict[tuple[int, int], int] = {}
        self._reads_itself: set[int] = set()

    def follow(self) -> Sharing:
        changes = 0
        whole: dict[tuple[int, Box], int] = {}  # number of changes of owners when all of it belonged to the tensor
        for access in self._accesses:
            tensor, box = access.tensor, access.box
            if access.writes:
                self._written[tensor] = access.position
            if whole.get((tensor, box)) != changes:
                piece = self._pieces[box]
                owner = self._owner[piece]
                mine = owner == tensor
                if not mine.all():
                    (self._write if access.writes else self._read)(access, owner, self._before[piece], mine)
                    changes += access.writes
                    continue
                whole[tensor, box] = changes
            if not access.writes:
                self._reads_itself.add(tensor)
        own = self._own
        ranges = [Range(each.buffer, *span) for each, span in zip(own, self._ranges, strict=True)]
        lost = [(own[tensor], own[by], at) for (tensor, by), at in self._lost.items() if by in self._reads_itself]
        return Sharing(tuple(ranges), tuple(lost))

    def _write(self, access: FixedAccess, owner: np.ndarray, before: np.ndarray, mine: np.ndarray) -> None:
        if not access.certain:  # what is between the written bytes may still be needed
            for other in {int(each) for each in owner[~mine].flat} - {_NOBODY}:
                self._link(other, access)
        np.copyto(before, owner, where=~mine)
        owner[...] = access.tensor

    def _read(self, access: FixedAccess, owner: np.ndarray, before: np.ndarray, mine: np.ndarray) -> None:
        if mine.any():
            self._reads_itself.add(access.tensor)
        for other in {int(each) for each in owner[~mine].flat} - {_NOBODY}:
            self._link(other, access)
            if (before[owner == other] == access.tensor).any():
                self._lost.setdefault((access.tensor, other), access.position)

    def _link(self, writer: int, access: FixedAccess) -> None:
        """The reader needs bytes of the writer: they stay from the write to the end of the loop that reads them."""
        span, written = self._ranges[access.tensor], self._written[writer]
        if access.loop is not None and (written > access.position or written < access.loop[0]):
            span[1] = max(span[1], access.loop[1])
        if written > access.position and access.loop is not None:
            self._ranges[writer][1] = max(self._ranges[writer][1], access.loop[1])
            span[0] = min(span[0], access.loop[0])
        span[0] = min(span[0], written)
