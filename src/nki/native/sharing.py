"""Which records two threads execute together, and where they wait for each other.

Each thread executes its part of the partitions of every record, so that work that stays inside partitions needs no
waiting. What crosses them does: matrix products, transposes, transfers between partitions, and device memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nki.core.tensor import View, whole
from nki.native.extents import Extent, extent
from nki.native.forms import Native
from nki.native.moves import Copy
from nki.native.primitives.abi import ALONE, LENGTH_BITS
from nki.native.words import Place

_SMALL = 1 << 12
"""Elements up to which one thread executes a record: waiting would take longer."""
_MOST = 96
"""Accesses that are kept; more are not worth the search, and the threads wait."""
_PARTITIONS = 128
_STEP = 2
"""Word of a slot that holds the distance of the record's partitions."""
_ANYWHERE = Extent((-1, 0), 0, 1, 0, 1 << 62)
"""What an argument touches that may be the same memory as another one."""


class Access(NamedTuple):
    """Bytes that a record touches.

    Attributes:
        aligned: each thread touches the partitions that are its own.
    """

    extent: Extent
    writes: bool
    aligned: bool

    def collides(self, other: Access) -> bool:
        """Whether two threads may touch the same bytes, and one of them writes."""
        if not (self.writes or other.writes) or (self.aligned and other.aligned):
            return False
        a, b = self.extent, other.extent
        return a.memory == b.memory and a.first < b.last and b.first < a.last and a.low < b.high and b.low < a.high


class Sharing:
    """Follows the records of a stretch.

    Args:
        aliases: base addresses of arguments that may be the same memory, because some argument is written.
    """

    def __init__(self, aliases: frozenset[int] = frozenset()) -> None:
        self._aliases = aliases
        self._since: list[Access] = []
        self._alone = False

    def waits(
        self,
        native: Native,
        words: list[int],
        views: Sequence[View | None],
        places: Sequence[Place],
        indices: Sequence[tuple[View, Place]] = (),
    ) -> bool:
        """Whether threads wait for each other before a record; notes in it who executes what.

        All threads read `indices`, for the addresses of the record.
        """
        home = next((view.start_partition for view in views if view is not None and view.buffer.on_chip), 0)
        alone = native.may_refuse or words[2] * words[3] <= _SMALL
        accesses = []
        for slot, (source, view, place) in enumerate(zip(native.sources, views, places, strict=True)):
            aligned = not alone and view is not None and _stays(native, slot, view, words[2], home)
            accesses.append(Access(self._extent(view, place), source.writes, aligned))
        accesses += [Access(self._extent(view, place), False, False) for view, place in indices]
        words[1] |= (home << LENGTH_BITS) | (ALONE if alone else 0)
        return self._waits(accesses, native.may_refuse)

    def waits_for(self, view: View, place: Place, writes: bool) -> bool:
        """Whether threads wait for each other before all of them read an operand, or one writes it."""
        return self._waits([Access(self._extent(view, place), writes, False)], False)

    def _waits(self, accesses: Sequence[Access], may_refuse: bool) -> bool:
        waits = (
            may_refuse
            or self._alone
            or len(self._since) + len(accesses) > _MOST
            or any(new.collides(old) for new in accesses for old in self._since)
        )
        if waits:
            self._since = []
        self._since += accesses
        self._alone = may_refuse
        return waits

    def _extent(self, view: View | None, place: Place) -> Extent:
        """What an operand may touch; of registers, all: an instruction may make those of all partitions undefined."""
        if view is None:
            return Extent((place.base, place.memory), 0, _PARTITIONS, 0, 4)
        if place.base in self._aliases:
            return _ANYWHERE
        return extent(view if view.dynamic is None else whole(view.buffer), place)


def _stays(native: Native, slot: int, view: View, count: int, home: int) -> bool:
    """Whether the thread that executes a partition of a record touches the same partition of this operand only."""
    if not view.buffer.on_chip or view.dynamic is not None or view.start_partition != home:
        return False
    if native.move is None:
        return True
    if isinstance(native.move, Copy):  # its dimensions may be in any order, and be split
        patch = native.template.patches[slot]
        return count == view.shape[0] and (patch.at + _STEP, 1) in patch.pitches
    return slot == 0  # what a transpose or a product reads crosses partitions
