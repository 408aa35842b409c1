"""Room in SBUF for tensors that are to live longer, position by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki.core.tensor import MemoryRegion
from nki.passes.analysis.liveness import Range
from nki.passes.analysis.memory_demand import demand, memories
from nki.passes.analysis.pressure import load
from nki.target.model import Target

_WIDTH = 64


class FreeBytes:
    """Bytes that are live at every position, and the most of them in each row of `_WIDTH` positions.

    What is added to whole rows is kept apart, so that a tensor that waits for long costs a few rows.
    """

    def __init__(self, positions: int, ranges: Sequence[Range], target: Target, share: float) -> None:
        """`share` of SBUF may be live at a position."""
        sbuf = next(memory for memory in memories(target) if memory.region is MemoryRegion.sbuf)
        needs = demand(sbuf, ranges)
        self._limit = int(share * sbuf.limit)
        live = np.zeros(-(-(positions + 1) // _WIDTH) * _WIDTH, np.int64)
        live[:positions] = load(needs.items, needs.fixed, positions)
        self._live = live.tolist()
        self._most = live.reshape(-1, _WIDTH).max(axis=1)
        self._rows = np.zeros_like(self._most)

    def take(self, first: int, after: int, size: int) -> bool:
        """Keep `size` bytes from a position to before another one, if there is room for them."""
        low, high = -(-first // _WIDTH), after // _WIDTH
        if low < high and self._most[low:high].max() + size > self._limit:
            return False
        # A set, because within one row both ends are the same interval, which must count once.
        ends = {(first, min(after, low * _WIDTH)), (max(first, high * _WIDTH), after)}
        parts = [
            (start, self._live[start:end], self._rows[start // _WIDTH] + size) for start, end in ends if start < end
        ]
        if any(max(live) + more > self._limit for _, live, more in parts):
            return False
        for start, live, more in parts:
            row = start // _WIDTH
            self._live[start : start + len(live)] = [each + size for each in live]
            self._most[row] = max(self._most[row], max(live) + more)
        if low < high:
            self._rows[low:high] += size
            self._most[low:high] += size
        return True
