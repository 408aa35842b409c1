"""Which tensors are needed from when to when, and how full SBUF, PSUM and HBM are meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.profiling.facts.extents import LoopSpan, inside, top
from nki.profiling.facts.timed_core import CoreFacts

Change = tuple[float, float]
"""When, and by how much."""


@dataclass(slots=True)
class Lifetime:
    """A tensor from the start of the first instruction that touches it until the last one is visible."""

    buffer: Buffer
    first: float
    last: float
    place: tuple[int, int] | None


def lifetimes(core: CoreFacts) -> list[Lifetime]:
    """All tensors that are touched, by first use; one that is used in a loop is needed during all its trips."""
    found: dict[int, Lifetime] = {}
    placement = core.program.placement or {}
    extents = dict(_extents(core))
    for position, issued in enumerate(core.items):
        if not core.ran[position]:
            continue
        first, last = core.start[position], core.visible[position]
        loop = extents.get(position)
        for buffer in _buffers(view for _, view in issued.views()):
            low, high = loop if loop is not None else (first, last)
            known = found.get(buffer.id)
            if known is None:
                place = buffer.address or placement.get(buffer.id)
                found[buffer.id] = Lifetime(buffer, low, high, place)
            else:
                known.first, known.last = min(known.first, low), max(known.last, high)
    for buffer in (*core.program.inputs, *(view.buffer for view in core.program.outputs)):
        if buffer.id in found and not buffer.on_chip:  # they are there before and after the kernel
            found[buffer.id].first, found[buffer.id].last = 0.0, core.line.makespan
    return sorted(found.values(), key=lambda life: (life.first, life.buffer.id))


def _buffers(views: Iterable[View]) -> set[Buffer]:
    found = set()
    for view in views:
        found.add(view.buffer)
        if view.dynamic is not None and isinstance(view.dynamic.indices, View):
            found.add(view.dynamic.indices.buffer)
    return found


def _extents(core: CoreFacts) -> Iterable[tuple[int, tuple[float, float]]]:
    """For the instructions in loops, when the outermost loop around each runs."""
    for span in top(core):
        if isinstance(span, LoopSpan):
            for position in range(span.plan.first, span.plan.last):
                yield position, (span.start, span.end)


def changes(lives: Iterable[Lifetime], core: CoreFacts) -> dict[str, list[Change]]:
    """Bytes that come and go, by counter. On chip they are those of one partition: the first of each quadrant for
    SBUF, of any for the banks of PSUM. Tensors that a kernel puts at one address count each.
    """
    found: dict[str, list[Change]] = defaultdict(list)
    for life in lives:
        buffer, place = life.buffer, life.place or (0, 0)
        if not buffer.on_chip:
            _note(found["hbm_bytes"], life, buffer.nbytes)
        elif buffer.region is MemoryRegion.sbuf:
            for quadrant in range(0, core.target.partitions, core.target.quadrant):
                if place[0] < quadrant + core.target.quadrant and quadrant < place[0] + buffer.partitions:
                    _note(found[f"sbuf_partition_{quadrant}"], life, buffer.row_bytes)
        elif life.place is not None:
            for bank, nbytes in _banks(place[1], buffer.row_bytes, core.target.psum.bank_bytes):
                _note(found[f"psum_bank_{bank}"], life, nbytes)
    return found


def _note(series: list[Change], life: Lifetime, nbytes: int) -> None:
    series += [(life.first, float(nbytes)), (life.last, -float(nbytes))]


def _banks(start: int, nbytes: int, size: int) -> Iterable[tuple[int, int]]:
    end = start + nbytes
    for bank in range(start // size, (end - 1) // size + 1):
        yield bank, min(end, (bank + 1) * size) - max(start, bank * size)


def loops(core: CoreFacts) -> list[tuple[LoopSpan, int]]:
    """All loops that are entered, with the number of the loop around each, or -1."""
    found: list[tuple[LoopSpan, int]] = []

    def visit(spans: Iterable[object], parent: int) -> None:
        for span in spans:
            if isinstance(span, LoopSpan):
                found.append((span, parent))
                if span.whole:
                    visit(inside(core, span), span.time.number)

    visit(top(core), -1)
    return found
