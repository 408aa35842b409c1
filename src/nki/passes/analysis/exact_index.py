"""An index over the accesses to a memory in which every two sets of bytes are equal or apart, as tiles mostly are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from nki.passes.analysis.footprints import Footprint
from nki.passes.analysis.memory_boxes import boxes

Rows = list[tuple[int, int]]


class ExactIndex:
    """The last write of each set of bytes, and the reads since then; of one memory or of several.

    It says what a `nki.passes.analysis.interval_index.Plane` says of such sets, without comparing any two of them.
    """

    __slots__ = ("_readers", "_writer")

    def __init__(self) -> None:
        self._writer: dict[Footprint, int] = {}
        self._readers: dict[Footprint, list[int]] = {}

    def read(self, position: int, footprint: Footprint, found: set[int]) -> None:
        """A read follows the last write."""
        if footprint in self._writer:
            found.add(self._writer[footprint])
        readers = self._readers.get(footprint)
        if readers is None:
            self._readers[footprint] = [position]
        else:
            readers.append(position)

    def write(self, position: int, footprint: Footprint, found: set[int]) -> None:
        """A write follows the last write and the reads since then."""
        readers = self._readers.pop(footprint, None)
        if readers is not None:
            found.update(readers)
        if footprint in self._writer:
            found.add(self._writer[footprint])
        self._writer[footprint] = position


def all_apart(footprints: Collection[Footprint], pitch: int) -> bool:
    """Whether it is certain that no two different sets share a byte; False as well for sets with many gaps.

    Args:
        footprints: different ones.
        pitch: see `boxes`.
    """
    if len(footprints) == 1 and not any(each.dims for each in footprints):
        return True
    columns: dict[tuple[int, int], Rows] = {}
    for footprint in footprints:
        if not (pitch or footprint.dims):
            columns.setdefault((footprint.low, footprint.high), []).append((footprint.first, footprint.after))
            continue
        for first, after, low, high, dense in boxes(footprint, pitch):
            if not dense:
                return False
            columns.setdefault((low, high), []).append((first, after))
    # Tiles of a matrix lie in columns: equal ones are compared by their rows, others must be apart.
    return _apart(columns) and all([_apart(rows) for rows in columns.values()])


def _apart(ranges: Iterable[tuple[int, int]]) -> bool:
    return all(end <= begin for (_, end), (begin, _) in pairwise(sorted(ranges)))
