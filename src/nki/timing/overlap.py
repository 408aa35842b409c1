"""Whether two instructions of one queue touch the same bytes, and which PSUM banks an instruction touches.

Views are compared by the boxes around them: a little too often for views with holes, which only moves a start by the
latency of an instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nki.core.tensor import MemoryRegion, View
from nki.timing.recipe import Touch

Box = tuple[int, int, int, int]
"""``(first partition, after, first byte, after)`` in a buffer; HBM is one partition."""


class Boxes:
    """The boxes around views, remembered."""

    def __init__(self) -> None:
        self._known: dict[Touch, Box] = {}

    def of(self, view: Touch) -> Box:
        """The box around a view."""
        found = self._known.get(view)
        if found is None:
            found = self._known[view] = _box(View(*view))
        return found

    def meet(self, writes: Sequence[Touch], others: Sequence[Touch]) -> bool:
        """Whether something of the first list is in the second one."""
        for a in writes:
            thing = a[0]
            for b in others:
                if b[0] is thing and (len(a) == 1 or a == b or self._overlap(a, b)):
                    return True
        return False

    def _overlap(self, a: Touch, b: Touch) -> bool:
        p, q = self.of(a), self.of(b)
        return p[0] < q[1] and q[0] < p[1] and p[2] < q[3] and q[2] < p[3]

    def banks(
        self, views: Iterable[View], placement: Mapping[int, tuple[int, int]] | None, bank_bytes: int
    ) -> tuple[int, ...]:
        """PSUM banks that views touch, as far as it is known where their buffers lie."""
        found: set[int] = set()
        for view in views:
            buffer = view.buffer
            if buffer.region is MemoryRegion.psum:
                place = buffer.address or (placement or {}).get(buffer.id)
                if place is not None:
                    box = self.of(view)
                    found.update(range((place[1] + box[2]) // bank_bytes, (place[1] + box[3] - 1) // bank_bytes + 1))
        return tuple(sorted(found))


def _box(view: View) -> Box:
    buffer, size, row = view.buffer, view.dtype.itemsize, view.row
    whole = (0, buffer.partitions, 0, buffer.row_bytes)
    if view.dynamic is not None:
        return whole
    low = high = 0
    rows = 1
    for axis, (count, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        if axis == 0 and buffer.on_chip and row and stride % row == 0:
            rows = (count - 1) * (stride // row) + 1
        else:
            low += min(0, (count - 1) * stride)
            high += max(0, (count - 1) * stride)
    partition, free = divmod(view.offset, row) if buffer.on_chip and row else (0, view.offset)
    if free + low < 0 or free + high >= row or rows < 1:
        return whole
    return partition, partition + rows, (free + low) * size, (free + high + 1) * size
