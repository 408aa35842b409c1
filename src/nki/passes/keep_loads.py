"""Kept loads: what an earlier load brought to SBUF, and is still there, is not loaded again.

Times of public matrix products show it: a product of 128 x 512 tiles that is written with a load of both operands for
every step takes as long as the loads that are left when each tile stays where it is until the kernel has asked for more
than half of SBUF since, in tiles of loads and of results, and also in those that are left out. That is what tiles do
whose addresses go round half of SBUF before anybody looks which of them hold the same: a repeated load is left out as
long as the ring has not come round to the copy. It is the same half in which loads run ahead. Loads into a part of a
larger tile are all done; a tile loaded as a whole is a value, wherever the kernel puts it.

A load is a function of the bytes that it reads. It is left out only if nothing between it and the earlier one can have
written these or the copy, and if the scheduler could have moved it there: not across a meeting of cores or a part of
the kernel whose order is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion
from nki.passes.analysis.free_bytes import FreeBytes
from nki.passes.analysis.liveness import liveness
from nki.passes.analysis.ordered_positions import ordered_positions
from nki.passes.analysis.tile_loads import Enter, Event, Key, Leave, Load, Store, TileLoads, tile_loads
from nki.passes.context import Context, Pass, PassResult
from nki.passes.editing.merge import merged
from nki.passes.editing.versions import with_versions
from nki.spec.kept_load import KeptLoad, together
from nki.spec.program import Program

_Bytes = tuple[int, int, int, int]
"""What a load brings, as `_repeated` numbers it, and the last positions that may have changed that."""


class _Copy(NamedTuple):
    """A tile that a load filled; `begun` is how far the ring had gone before."""

    tile: Buffer
    begun: float
    location: Location


def run(program: Program, context: Context) -> PassResult:
    """Read the earlier copy in place of a later equal one, and drop the load of the later one.

    Both loads stand in one block, and fill tensors that the allocator places and nothing else writes. A tile that is
    loaded several times counts as so many tensors (`nki.passes.editing.versions`). What nobody reads stays loaded.
    """
    if program.placement is not None:
        return PassResult(program)
    found = tile_loads(program)
    several = {tile: loads for tile, loads in found.by_tile.items() if len(loads) > 1}
    if several:
        places = {tile: [(load.block, load.place) for load in loads] for tile, loads in several.items()}
        program = with_versions(program, places)
        found = tile_loads(program)
    repeated = _repeated(found)
    if not repeated:
        return PassResult(program)
    search = _Search(program, context, repeated)
    search.follow(found.events)
    if not search.dropped:
        return PassResult(program)
    return PassResult(merged(program, search.dropped, search.names), kept=together(search.kept))


def _repeated(found: TileLoads) -> dict[int, int]:
    """By position, numbers of loads that bring what others bring as well: equal ones for equal keys."""
    first: dict[Key, int] = {}
    numbers: dict[int, int] = {}
    for loads in found.by_tile.values():
        for load in loads:
            number = first.setdefault(load.key(), load.position)
            numbers[load.position] = number
    several = {number for position, number in numbers.items() if number != position}
    return {position: number for position, number in numbers.items() if number in several}


def _ring(context: Context) -> float:
    """Bytes of a partition after which a copy is gone; none are with room in all of SBUF."""
    share = context.imitation.kept_loads
    return inf if share == "all" else share * context.target.sbuf.usable_bytes_per_partition


class _Ring:
    """How far the ring has gone: bytes of a partition that tiles have taken, as the kernel is written."""

    def __init__(self, tiles: Iterable[tuple[int, int]]) -> None:
        """`tiles` are first positions and bytes of a partition, by first position."""
        self._tiles = list(tiles)
        self._next = 0
        self._gone = 0.0

    def at(self, position: int) -> float:
        """Before an instruction."""
        while self._next < len(self._tiles) and self._tiles[self._next][0] < position:
            self._gone += self._tiles[self._next][1]
            self._next += 1
        return self._gone

    def again(self, since: float, trips: int | None) -> None:
        """A loop is over that began at `since`, and went round so often."""
        self._gone = inf if trips is None else since + trips * (self._gone - since)


class _Search:
    """One walk over a program that finds loads of what is there.

    Attributes:
        names: for a tile whose load is dropped, by id, the one with the same bytes.
        dropped: ids of the records of the dropped loads.
        kept: one record for each.
    """

    def __init__(self, program: Program, context: Context, repeated: Mapping[int, int]) -> None:
        self.names: dict[int, Buffer] = {}
        self.dropped: set[int] = set()
        self.kept: list[KeptLoad] = []
        live = liveness(program)
        self._last = {buffer.id: last for buffer, _, last in live.buffers}
        self._room = FreeBytes(live.positions, live.buffers, context.target, context.imitation.merged_room)
        sbuf = (each for each in live.buffers if each.buffer.region is MemoryRegion.sbuf)
        self._ring = _Ring((first, buffer.row_bytes) for buffer, first, _ in sbuf)
        self._size = _ring(context)
        self._own_order = _Last(ordered_positions(program, live.positions))
        self._repeated = repeated
        self._written: dict[int, int] = {}  # the last position so far that writes a tensor of device memory
        self._met = -1

    def follow(self, events: Sequence[Event]) -> None:
        """Go through a program. A copy is of use in its block; what is in a loop counts with what it does."""
        scopes: list[dict[_Bytes, _Copy]] = [{}]
        loops: list[tuple[float, int | None]] = []
        for event in events:
            match event:
                case Load():
                    self._load(event, scopes[-1])
                case Store(position, written, meets):
                    self._written.update(dict.fromkeys(written, position))
                    self._met = position if meets else self._met
                case Enter(position, trips):
                    loops.append((self._ring.at(position), trips))
                    scopes.append({})
                case Leave(position):
                    self._ring.at(position)
                    self._ring.again(*loops.pop())
                    scopes.pop()

    def _load(self, load: Load, copies: dict[_Bytes, _Copy]) -> None:
        """Drop a load for a copy that is still there; otherwise later ones may use its own."""
        position, tile, issued = load.position, load.tile, load.issued
        key = self._repeated.get(position)
        if key is None or self._last[tile.id] == position or self._own_order.at(position) == position:
            return
        source = issued.arguments.src.buffer
        met = -1 if source.role == "fixed" else self._met  # no core writes to what is fixed
        now = (key, self._written.get(source.id, -1), met, self._own_order.at(position))
        copy = copies.get(now)
        if copy is None or not self._is_there(copy, position):
            copies[now] = _Copy(tile, self._ring.at(position), issued.location)
            return
        self._last[copy.tile.id] = max(self._last[copy.tile.id], self._last[tile.id])
        self.names[tile.id] = copy.tile
        self.dropped.add(id(issued))
        self.kept.append(KeptLoad(source.name, issued.location, copy.location, 1, tile.nbytes))

    def _is_there(self, copy: _Copy, position: int) -> bool:
        """Whether the ring has not come round to a copy, and SBUF has room for it until now."""
        gone = self._ring.at(position) - copy.begun
        if self._size < inf and not gone <= self._size:  # nan behind a loop of unknown trips, which took all there is
            return False
        return self._room.take(self._last[copy.tile.id] + 1, position, copy.tile.row_bytes)


class _Last:
    """The last marked position at or before one, for positions that ascend."""

    def __init__(self, marks: bytearray) -> None:
        self._marks = marks
        self._from = 0
        self._found = -1

    def at(self, position: int) -> int:
        if position >= self._from:
            self._found = max(self._found, self._marks.rfind(1, self._from, position + 1))
            self._from = position + 1
        return self._found


PASS = Pass(
    "keep_loads",
    "Read a tile again that an earlier load brought, while it is there.",
    lambda before, context: run(before.program, context),
)
