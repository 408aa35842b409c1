"""Which tensors are needed from when to when, and how full SBUF, PSUM and HBM are meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.profiling.facts.extents import LoopSpan, inside, top
from nki.profiling.facts.timed_core import CoreFacts

Change = tuple[float, float]
"""When, and by how much."""


_Held = tuple[float, float, int, int]
"""From when to when somebody has which bytes: the first one, and the one behind the last."""


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
    SBUF, of any for the banks of PSUM. A byte counts once, whoever has it: a tensor moves in while the one before it at
    that address moves out, so that the lives of both overlap. Tensors of SBUF without an address count each.
    """
    found: dict[str, list[Change]] = defaultdict(list)
    held: dict[str, list[_Held]] = defaultdict(list)
    for life in lives:
        buffer = life.buffer
        names = _quadrants(life, core) if buffer.on_chip and buffer.region is MemoryRegion.sbuf else ()
        if not buffer.on_chip:
            found["hbm_bytes"] += _whole(life, buffer.nbytes)
        elif life.place is None:
            for name in names:
                found[name] += _whole(life, buffer.row_bytes)
        elif names:
            for name in names:
                held[name].append((life.first, life.last, life.place[1], life.place[1] + buffer.row_bytes))
        else:
            for bank, low, high in _banks(life.place[1], buffer.row_bytes, core.target.psum.bank_bytes):
                held[f"psum_bank_{bank}"].append((life.first, life.last, low, high))
    for name, spans in held.items():
        found[name] += _covered(spans)
    return found


def _whole(life: Lifetime, nbytes: int) -> list[Change]:
    return [(life.first, float(nbytes)), (life.last, -float(nbytes))]


def _quadrants(life: Lifetime, core: CoreFacts) -> list[str]:
    """The counters of SBUF that a tensor counts for."""
    first, size = (life.place or (0, 0))[0], core.target.quadrant
    starts = range(0, core.target.partitions, size)
    return [
        f"sbuf_partition_{start}" for start in starts if first < start + size and start < first + life.buffer.partitions
    ]


def _covered(held: Sequence[_Held]) -> list[Change]:
    """By how many bytes all spans together become longer and shorter."""
    edges = np.unique([edge for _, _, low, high in held for edge in (low, high)])
    sizes, owners = np.diff(edges), np.zeros(max(0, len(edges) - 1), np.int64)
    parts = [slice(*np.searchsorted(edges, (low, high)).tolist()) for _, _, low, high in held]
    lasting = [(number, first, last) for number, (first, last, _, _) in enumerate(held) if first < last]
    steps = [step for number, first, last in lasting for step in ((last, -1, number), (first, 1, number))]
    found: list[Change] = []
    for time, step, number in sorted(steps):
        owned = owners[parts[number]]
        alone = owned == (0 if step > 0 else 1)
        owned += step
        found.append((time, step * float(sizes[parts[number]][alone].sum())))
    return found


def _banks(start: int, nbytes: int, size: int) -> Iterable[tuple[int, int, int]]:
    """The banks that bytes are in, with the first one there and the one behind the last."""
    end = start + nbytes
    for bank in range(start // size, (end - 1) // size + 1):
        yield bank, max(start, bank * size), min(end, (bank + 1) * size)


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
