"""How much on-chip memory a program needs at once: what is live at each instruction, in the fullest partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from nki.core.tensor import MemoryRegion
from nki.passes.analysis.live_intervals import Fixed, Item
from nki.passes.analysis.liveness import Liveness, liveness
from nki.passes.analysis.memory_demand import OnChipMemory, demand, placed
from nki.spec.program import Program


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Bytes per partition of one core that are in use at the same time, at worst."""

    sbuf: int
    psum: int


def memory_peak(program: Program) -> MemoryPeak:
    """The most that is live at one instruction of a program, in the partition where that is most.

    A tensor lives from the first to the last item of its block that uses it; a loop is one item, so that a tensor from
    outside that is used in a loop lives during all of it. A tensor without an address starts at partition 0, or where
    it was placed. Tensors with an explicit address take their byte interval, once where intervals overlap.
    """
    live = liveness(program)
    return MemoryPeak(*(_peak(live, region, program) for region in (MemoryRegion.sbuf, MemoryRegion.psum)))


def _peak(live: Liveness, region: MemoryRegion, program: Program) -> int:
    needs = placed(demand(OnChipMemory(region, 0, 1), live.buffers), program.placement)
    return int(load(needs.items, needs.fixed, live.positions).max(initial=0))


def load(items: Sequence[Item], fixed: Sequence[Fixed], positions: int) -> np.ndarray:
    """Bytes that are live at each position, in the partition that is fullest there: no allocation needs less.

    Alignment is left out, and so is what happens behind the last position. Partition 0, and those where something with
    an address begins, are the ones to look at: all others hold a part of what one of these holds.
    """
    worst = np.zeros(positions + 1, np.int64)
    for partition in sorted({0, *(each.partition for each in fixed), *(item.start for item in items)}):
        here = [item for item in items if item.start <= partition < item.start + item.partitions]
        there = [each for each in fixed if each.partition <= partition < each.partition_end]
        np.maximum(worst, _automatic(here, positions) + _covered(there, positions), out=worst)
    return worst[:positions]


def peak(items: Sequence[Item], fixed: Sequence[Fixed], positions: int) -> int:
    """The most bytes of `load`; 0 if nothing is ever live."""
    if fixed or any(item.start for item in items):
        return int(load(items, fixed, positions).max(initial=0))
    change = [0] * (positions + 2)  # quicker than arrays, which are made of as many small objects
    for item in items:
        change[item.first] += item.size
        change[min(item.last + 1, positions)] -= item.size
    return max(accumulate(change[:positions]), default=0)


def _automatic(items: Sequence[Item], positions: int) -> np.ndarray:
    change = np.zeros(positions + 2, np.int64)
    if items:
        table = np.array([(item.first, item.last + 1, item.size) for item in items], np.int64)
        np.minimum(table[:, :2], positions, out=table[:, :2])
        np.add.at(change, table[:, 0], table[:, 2])
        np.add.at(change, table[:, 1], -table[:, 2])
    return np.cumsum(change)[:-1]


def _covered(fixed: Sequence[Fixed], positions: int) -> np.ndarray:
    """Bytes in the union of the intervals that live at each position.

    The bytes are cut at every end of an interval, and each piece counts how many of the living cover it.
    """
    change = np.zeros(positions + 2, np.int64)
    if not fixed:
        return change[:-1]
    cuts = np.unique(np.array([(each.start, each.end) for each in fixed], np.int64))
    widths, counts = np.diff(cuts), np.zeros(len(cuts) - 1, np.int64)
    starts = np.searchsorted(cuts, np.array([each.start for each in fixed], np.int64)).tolist()
    ends = np.searchsorted(cuts, np.array([each.end for each in fixed], np.int64)).tolist()
    births = [(each.first, 1, n) for n, each in enumerate(fixed)]
    deaths = [(each.last + 1, -1, n) for n, each in enumerate(fixed)]
    for at, step, number in sorted([*births, *deaths]):
        own, width = counts[starts[number] : ends[number]], widths[starts[number] : ends[number]]
        before = int(width[own > 0].sum())
        own += step
        change[min(at, positions)] += int(width[own > 0].sum()) - before
    return np.cumsum(change)[:-1]
