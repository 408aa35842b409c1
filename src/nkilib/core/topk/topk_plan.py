"""How the search for the largest elements is laid out: segments of rows, and how many elements each of them gives."""

from __future__ import annotations

from dataclasses import dataclass

import nki.language as nl
from nkilib.streaming import ceil_div

AT_ONCE = 8
"""Elements that Vector finds in one pass."""
_WIDEST = 16_384
"""Elements of a partition that it searches at most."""
_START = 90
"""Cycles by which a pass is longer than its elements, and those of a rotation in passes' terms."""
_ROTATION = 1200


@dataclass(frozen=True)
class TopkPlan(nl.NKIObject):
    """A row is cut in segments, of which each gives its largest elements to the next one, again and again.

    Attributes:
        segments: of a row; 1 if a row has a partition to itself.
        length: elements of a segment; the last one may have less.
        share: elements that a segment gives each time, a multiple of 8; all segments together give k or more.
    """

    segments: int
    length: int
    share: int

    @property
    def widest(self) -> int:
        """Elements of a segment with all that it gets."""
        return max(AT_ONCE, self.length + (self.segments - 1) * self.share)

    @property
    def together(self) -> int:
        """Rows that the partitions hold at once."""
        return int(nl.tile_size.pmax) // self.segments

    def cycles(self, rows: int, k: int) -> int:
        """About how long Vector works for rows."""
        passes = 2 * self.share // AT_ONCE
        stages = range(self.segments)
        one = sum(passes * (self.length + stage * self.share + _START) + _ROTATION for stage in stages)
        if self.segments == 1:
            return ceil_div(rows, self.together) * (one - _ROTATION)
        merged = 2 * ceil_div(k, AT_ONCE) * (self.segments * self.share + _START)
        return ceil_div(rows, self.together) * one + ceil_div(rows, int(nl.tile_size.pmax)) * merged


def planned(rows: int, columns: int, k: int, *, whole: bool = False) -> TopkPlan | None:
    """The plan of least cycles; None if none fits.

    Args:
        rows: that a core has.
        columns: of a row.
        k: elements that are wanted.
        whole: do not cut rows.
    """
    most = 1 if whole else int(nl.tile_size.pmax)
    plans = [_cut(columns, k, segments) for segments in range(1, max(1, min(most, columns // AT_ONCE)) + 1)]
    fitting = [plan for plan in plans if plan.widest <= _WIDEST]
    return min(fitting, key=lambda plan: plan.cycles(rows, k), default=None)


def _cut(columns: int, k: int, segments: int) -> TopkPlan:
    length = ceil_div(columns, segments)
    segments = ceil_div(columns, length)  # none is empty, and a short last one is filled up
    return TopkPlan(segments, length, AT_ONCE * ceil_div(ceil_div(k, segments), AT_ONCE))
