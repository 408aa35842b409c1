"""Longer lives in PSUM: which tensors may be needed later than they are, so that enough banks are left to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from nki.core.tensor import Buffer, MemoryRegion
from nki.passes.analysis.liveness import liveness
from nki.spec.program import Program


def without_room(program: Program, wanted: Sequence[tuple[Buffer, int]], most: int) -> set[int]:
    """Places in `wanted` of the lives that stay as they are, because more than `most` banks would be live.

    Where that is so, those that would end last give way, which leaves most of the others. A tensor that lives that long
    anyway adds nothing.

    Args:
        wanted: tensors of PSUM, all of at most a bank, and the last position to which each would live.
        most: banks that may be live where a life is made longer.
    """
    live = liveness(program)
    change, ends = [0] * (live.positions + 1), dict[int, int]()
    for buffer, first, last in live.buffers:
        if buffer.region is MemoryRegion.psum:
            change[first] += 1
            change[last + 1] -= 1
            ends[buffer.id] = last
    longer: dict[int, list[tuple[int, int]]] = {}
    for number, (buffer, last) in enumerate(wanted):
        if last > ends[buffer.id]:
            longer.setdefault(ends[buffer.id] + 1, []).append((-last, number))
    return _dropped(change, longer, most)


def _dropped(change: list[int], longer: Mapping[int, list[tuple[int, int]]], most: int) -> set[int]:
    """See `without_room`.

    Args:
        change: at each position, how many more banks are live than before; changed here.
        longer: by first position, the last one with its sign changed, and the place in `wanted`.
    """
    dropped: set[int] = set()
    active: list[tuple[int, int]] = []  # the last to end comes first; those that ended stay at the end
    count = 0
    for position in range(len(change) - 1):
        count += change[position]
        for entry in longer.get(position, ()):
            heappush(active, entry)
            change[1 - entry[0]] -= 1
            count += 1
        while count > most and active and -active[0][0] >= position:
            last, number = heappop(active)
            dropped.add(number)
            change[1 - last] += 1
            count -= 1
    return dropped
