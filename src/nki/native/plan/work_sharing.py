"""Which records two threads execute together, and where they wait for each other.

Each thread executes its part of the partitions of every record, so that work that stays inside partitions needs no
waiting. What crosses them does: matrix products, transposes, transfers between partitions, and device memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nki.core.tensor import View, whole
from nki.native.operand_layout import Place
from nki.native.primitives.abi import ALONE, LENGTH_BITS
from nki.native.records.extents import Extent, ViewExtent, box, extent, extent_at
from nki.native.records.forms import Native
from nki.native.records.moves import Copy

_SMALL = 1 << 12
"""Elements up to which one thread executes a record: waiting would take longer."""
_MOST = 96
"""Accesses that are kept; more are not worth the search, and the threads wait."""
_PARTITIONS = 128
_STEP = 2
"""Word of a slot that holds the distance of the record's partitions."""
_ANYWHERE = Extent((-1, 0), 0, 1, 0, 1 << 62)
"""What an argument touches that may be the same memory as another one."""


Shapes = dict[int, list[ViewExtent | None]]


class RecordAccess(NamedTuple):
    """Bytes that a record touches.

    Attributes:
        aligned: each thread touches the partitions that are its own.
        alone: the first thread touches all of them, and no other thread any.
    """

    extent: Extent
    writes: bool
    aligned: bool
    alone: bool = False

    def collides(self, other: RecordAccess) -> bool:
        """Whether two threads may touch the same bytes of one memory, and one of them writes."""
        if not (self.writes or other.writes) or (self.aligned and other.aligned) or (self.alone and other.alone):
            return False
        a, b = self.extent, other.extent
        return a.first < b.last and b.first < a.last and a.low < b.high and b.low < a.high


class Sharing:
    """Follows the records of a stretch.

    Args:
        aliases: base addresses of arguments that may be the same memory, because some argument is written.
        shapes: the boxes of the operands of each form, by its identity; those of instructions of one form are equal.
    """

    def __init__(self, aliases: frozenset[int] = frozenset(), shapes: Shapes | None = None) -> None:
        self._aliases = aliases
        self._shapes: Shapes = {} if shapes is None else shapes
        self._since: dict[tuple[int, int], list[RecordAccess]] = {}  # by memory
        self._count = 0
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
        shapes = self._shapes.get(id(native))
        if shapes is None:
            shapes = self._shapes[id(native)] = [None if view is None else box(view) for view in views]
        accesses = []
        for slot, (source, view, place) in enumerate(zip(native.sources, views, places, strict=True)):
            aligned = not alone and view is not None and _stays(native, slot, view, words[2], home)
            shape = shapes[slot]
            if shape is None or view is None or view.dynamic is not None or place.base in self._aliases:
                found = self._extent(view, place)
            else:
                found = extent_at(words[native.template.patches[slot].at + 1], shape, place)
            accesses.append(RecordAccess(found, source.writes, aligned, alone))
        accesses += [RecordAccess(self._extent(view, place), False, False) for view, place in indices]
        words[1] |= (home << LENGTH_BITS) | (ALONE if alone else 0)
        return self._waits(accesses, native.may_refuse)

    def waits_for(self, view: View, place: Place, writes: bool) -> bool:
        """Whether threads wait for each other before all of them read an operand, or one writes it."""
        return self._waits([RecordAccess(self._extent(view, place), writes, False)], False)

    def _waits(self, accesses: Sequence[RecordAccess], may_refuse: bool) -> bool:
        waits = may_refuse or self._alone or self._count + len(accesses) > _MOST or self._meets(accesses)
        # Behind a wait nobody is still at what came before it: from here on only the new accesses can collide.
        if waits:
            self._since, self._count = {}, 0
        for access in accesses:
            since = self._since.setdefault(access.extent.memory, [])
            if access not in since:
                since.append(access)
                self._count += 1
        self._alone = may_refuse
        return waits

    def _meets(self, accesses: Sequence[RecordAccess]) -> bool:
        """Whether one of them collides with one since the threads last waited."""
        for new in accesses:
            for old in self._since.get(new.extent.memory, ()):
                if new.collides(old):
                    return True
        return False

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
