"""Rectangles of bytes: what is known about a buffer as long as it can be said in a few of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Box = tuple[int, int, int, int]
"""Rows and bytes in a row, both half open."""

_MOST = 32


class Pieces:
    """Boxes that do not overlap. Those that make up a larger box together become one.

    Attributes:
        pitch: distance of the rows in bytes.
        boxes: in no order.
    """

    __slots__ = ("boxes", "pitch")

    def __init__(self, pitch: int) -> None:
        self.pitch = pitch
        self.boxes: list[Box] = []

    def holds(self, box: Box) -> bool:
        """Whether one of the boxes contains all of it."""
        first, last, low, high = box
        for a, b, c, d in self.boxes:  # noqa: SIM110 - a loop is faster than any(), and there are few boxes
            if a <= first and last <= b and c <= low and high <= d:
                return True
        return False

    def touches(self, box: Box) -> bool:
        """Whether some byte of it lies in one of the boxes."""
        first, last, low, high = box
        for a, b, c, d in self.boxes:  # noqa: SIM110 - as above
            if first < b and a < last and low < d and c < high:
                return True
        return False

    def add(self, box: Box) -> bool:
        """Take one more; False, and nothing is changed, if it overlaps others or if these would be too many."""
        boxes = self.boxes
        if len(boxes) >= _MOST or self.touches(box):
            return False
        grown = True
        while grown:
            grown = False
            first, last, low, high = box
            for i, (a, b, c, d) in enumerate(boxes):
                if a == first and b == last:
                    grown = d == low or high == c
                elif c == low and d == high:
                    grown = b == first or last == a
                if grown:
                    box = (min(a, first), max(b, last), min(c, low), max(d, high))
                    del boxes[i]
                    break
        boxes.append(box)
        return True

    def size(self) -> int:
        """Bytes in all of them."""
        return sum([(last - first) * (high - low) for first, last, low, high in self.boxes])

    def bytes_in(self, memory: np.ndarray, start: int, pitch: int) -> Iterator[np.ndarray]:
        """The boxes in memory with one item per byte; row 0 begins at `start`, and rows lie `pitch` apart."""
        for first, last, low, high in self.boxes:
            yield np.ndarray((last - first, high - low), memory.dtype, memory, start + first * pitch + low, (pitch, 1))
