"""Who uses on-chip memory: the tensors that are live at a position, grouped, as rows for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nki.core.source import Location
from nki.core.tensor import Buffer
from nki.passes.analysis.liveness import Range, liveness
from nki.passes.analysis.memory_demand import Demand, OnChipMemory, demand, memories, placed
from nki.passes.analysis.pressure import load
from nki.spec.program import Issued, Program
from nki.target.model import Target

ROWS = 8
"""Rows of a table that people read."""


@dataclass(frozen=True, slots=True)
class TensorRow:
    """Tensors of one shape and dtype that one line allocates.

    Attributes:
        name: of the first one.
        count: how many are live.
        nbytes: that each of them takes of a partition.
        place: file and line.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    nbytes: int
    place: str

    @property
    def total(self) -> int:
        """Bytes that all of them take."""
        return self.count * self.nbytes

    def __str__(self) -> str:
        number = f"{self.count} x " if self.count > 1 else ""
        return f"{self.total:>10}  {number}{self.name} {self.dtype}{list(self.shape)}  {self.place}"

    def as_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "count": self.count,
            "bytes": self.nbytes,
            "place": self.place,
        }


@dataclass(frozen=True, slots=True)
class BankRow:
    """One PSUM bank: how many tensors come to lie in it, and at how many positions it is in use."""

    bank: int
    tensors: int
    busy: int

    def as_json(self) -> dict[str, int]:
        """JSON types only."""
        return {"bank": self.bank, "tensors": self.tensors, "busy": self.busy}


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """What a program does with SBUF or PSUM; sizes in bytes of each partition.

    Attributes:
        capacity: that may be allocated.
        bound: most that is live at once: no allocation needs less.
        peak: the byte after the highest one that is used; None before allocation.
        position, location: where most is live, as a position of ``program.body.walk()`` and in the source.
        occupancy: ``(position, bytes)`` wherever the number of live bytes changes.
        tensors: what is live at `position`, the largest first.
        banks: of PSUM, after allocation.
    """

    name: str
    capacity: int
    bound: int
    peak: int | None
    position: int
    location: Location
    occupancy: tuple[tuple[int, int], ...]
    tensors: tuple[TensorRow, ...]
    banks: tuple[BankRow, ...]

    def as_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "name": self.name,
            "capacity": self.capacity,
            "bound": self.bound,
            "peak": self.peak,
            "position": self.position,
            "location": self.location.to_json(),
            "occupancy": [list(step) for step in self.occupancy],
            "tensors": [row.as_json() for row in self.tensors],
            "banks": [row.as_json() for row in self.banks],
        }


def usage(program: Program, target: Target) -> tuple[MemoryUsage, MemoryUsage]:
    """The use of SBUF and of PSUM, before or after allocation."""
    live = liveness(program)
    sbuf, psum = (placed(demand(memory, live.buffers), program.placement) for memory in memories(target))
    return (
        _memory_usage(sbuf, live.positions, program, 0),
        _memory_usage(psum, live.positions, program, target.psum.bank_bytes),
    )


def live_rows(needs: Demand, position: int) -> tuple[TensorRow, ...]:
    """The tensors that are live at a position, grouped by line, shape and dtype, the largest group first."""
    groups: dict[tuple[Any, ...], list[Buffer]] = {}
    for live in (*needs.automatic, *needs.explicit):
        if live.first <= position <= live.last:
            buffer = live.buffer
            groups.setdefault((buffer.location.frame, buffer.shape, buffer.dtype), []).append(buffer)
    rows = [_row(buffers, needs.memory) for buffers in groups.values()]
    return tuple(sorted(rows, key=lambda row: (-row.total, row.place, row.name)))


def table(rows: Sequence[TensorRow]) -> str:
    """The largest rows as text."""
    lines = ["     bytes  live tensors", *(str(row) for row in rows[:ROWS])]
    rest = rows[ROWS:]
    if rest:
        lines.append(f"{sum(row.total for row in rest):>10}  {sum(row.count for row in rest)} more")
    return "\n".join(f"  {line}" for line in lines)


def at_position(program: Program, position: int) -> Issued | None:
    """The instruction at a position; None in a program without any."""
    return next((issued for number, issued in enumerate(program.body.walk()) if number == position), None)


def place_of(location: Location) -> str:
    """File name and line."""
    return f"{Path(location.frame.file).name}:{location.frame.line}" if location.frame is not None else "<unknown>"


def _row(buffers: Sequence[Buffer], memory: OnChipMemory) -> TensorRow:
    first = buffers[0]
    return TensorRow(
        first.name, str(first.dtype), first.shape, len(buffers), memory.size(first), place_of(first.location)
    )


def _memory_usage(needs: Demand, positions: int, program: Program, bank_bytes: int) -> MemoryUsage:
    memory, placement = needs.memory, program.placement
    bytes_live = load(needs.items, needs.fixed, positions)
    worst = int(bytes_live.argmax()) if positions else 0
    at = at_position(program, worst)
    return MemoryUsage(
        name=memory.title,
        capacity=memory.limit,
        bound=int(bytes_live.max(initial=0)),
        peak=None if placement is None else max((end for _, _, end in _placed(needs, placement)), default=0),
        position=worst,
        location=program.location if at is None else at.location,
        occupancy=_steps(bytes_live),
        tensors=live_rows(needs, worst),
        banks=() if placement is None or not bank_bytes else tuple(_banks(needs, placement, bank_bytes)),
    )


def _placed(needs: Demand, placement: dict[int, tuple[int, int]]) -> Iterator[tuple[Range, int, int]]:
    """Live buffers with the first byte that they keep from others, and the one after the last."""
    for live in needs.automatic:
        start = placement[live.buffer.id][1]
        yield live, start, start + needs.memory.size(live.buffer)
    for live, fixed in zip(needs.explicit, needs.fixed, strict=True):
        yield live, fixed.start, fixed.end


def _steps(bytes_live: np.ndarray) -> tuple[tuple[int, int], ...]:
    changes = np.flatnonzero(np.diff(bytes_live, prepend=-1))
    return tuple((int(at), int(bytes_live[at])) for at in changes)


def _banks(needs: Demand, placement: dict[int, tuple[int, int]], bank_bytes: int) -> Iterator[BankRow]:
    inside: list[list[Range]] = [[] for _ in range(needs.memory.limit // bank_bytes)]
    for live, start, end in _placed(needs, placement):
        for bank in range(start // bank_bytes, -(-end // bank_bytes)):
            inside[bank].append(live)
    for bank, lives in enumerate(inside):
        busy = after = 0
        for live in sorted(lives, key=lambda live: live.first):
            busy += max(0, live.last + 1 - max(live.first, after))
            after = max(after, live.last + 1)
        yield BankRow(bank, len(lives), busy)
