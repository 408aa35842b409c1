"""Loads of tiles: which tiles in SBUF are filled by loads alone, and what writes to device memory between the loads."""

from __future__ import annotations

from typing import Any, NamedTuple

from nki.core.tensor import Buffer, MemoryRegion, View, contiguous_strides
from nki.isa.dma import dma_copy
from nki.spec.program import Block, Issued, Program, trips_of

Key = tuple[Any, ...]
"""What a load brings and in which form: equal keys are equal tiles while nothing writes to the source."""

_SBUF = MemoryRegion.sbuf
_MEETS = ("rendezvous", "fence")


class Load(NamedTuple):
    """A load that fills all of a tile.

    Attributes:
        position: in ``program.body.walk()``.
        block, place: where it stands.
    """

    position: int
    block: Block
    place: int
    issued: Issued
    tile: Buffer

    def key(self) -> Key:
        """See `Key`."""
        dst, *others = self.issued.arguments[:-1]  # the last one is its name
        return (self.tile.shape, self.tile.dtype, dst.shape, *others)


class Store(NamedTuple):
    """An instruction that writes to tensors of device memory, by id, or meets other cores there."""

    position: int
    written: tuple[int, ...]
    meets: bool


class Enter(NamedTuple):
    """A loop begins at a position; `trips` is None if nobody knows how many it has."""

    position: int
    trips: int | None


class Leave(NamedTuple):
    """The loop that began last and is not over ends before a position."""

    position: int


Event = Load | Store | Enter | Leave


class TileLoads(NamedTuple):
    """What `tile_loads` finds.

    Attributes:
        events: in the order of the program. Loads are those of tiles that nothing else writes.
        by_tile: the loads of each such tile, by its id.
    """

    events: list[Event]
    by_tile: dict[int, list[Load]]


def tile_loads(program: Program) -> TileLoads:
    """Loads of whole tiles, and what may come between two of them.

    A tile lies in SBUF at an address that the allocator chooses. Each load copies from a static address of device
    memory, fills all of the tile, stands in the block that the tile belongs to, and comes before its readers.
    """
    found = _Scan()
    found.block(program.body)
    by_tile = {tile: loads for tile, loads in found.loads.items() if tile not in found.others}
    return TileLoads([each for each in found.events if type(each) is not Load or each.tile.id in by_tile], by_tile)


class _Scan:
    """One walk over a program.

    Attributes:
        others: tensors that something else than a load fills, or that are read before they are filled.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.loads: dict[int, list[Load]] = {}
        self.others: set[int] = set()
        self._position = 0

    def block(self, block: Block) -> None:
        own = {buffer.id for buffer in block.buffers}
        for place, item in enumerate(block.items):
            if type(item) is not Issued:
                self.events.append(Enter(self._position, trips_of(item)))  # type: ignore[arg-type]
                self.block(item.body)  # type: ignore[union-attr]
                self.events.append(Leave(self._position))
                continue
            tile = _filled(item)
            if tile is not None and tile.id in own:
                load = Load(self._position, block, place, item, tile)
                self.events.append(load)
                self.loads.setdefault(tile.id, []).append(load)
            else:
                self._other(item)
            self._position += 1

    def _other(self, issued: Issued) -> None:
        instruction, arguments = issued.instruction, issued.arguments
        loads, others = self.loads, self.others
        for position, _ in instruction.tensor_positions:
            value = arguments[position]
            for view in (value,) if type(value) is View else value if type(value) is tuple else ():
                buffer = view.buffer
                if buffer.id not in loads:
                    others.add(buffer.id)
                if view.dynamic is not None and type(view.dynamic.indices) is View:
                    others.add(view.dynamic.indices.buffer.id)
        written: tuple[int, ...] = ()
        for position in instruction.written_positions:
            value = arguments[position]
            for view in (value,) if type(value) is View else value if type(value) is tuple else ():
                buffer = view.buffer
                if not buffer.on_chip:
                    written += (buffer.id,)
                    continue
                others.add(buffer.id)
        effects = instruction.effects(arguments)
        meets = bool(effects) and any(effect in _MEETS for effect in effects)
        if written or meets:
            self.events.append(Store(self._position, written, meets))


def _filled(issued: Issued) -> Buffer | None:
    """The tile in SBUF all of which an instruction copies from device memory, its address being free; None if none."""
    if issued.instruction is not dma_copy:
        return None
    dst, src = issued.arguments[0], issued.arguments[1]
    tile: Buffer = dst.buffer
    if tile.region is not _SBUF or tile.address is not None or src.buffer.on_chip or src.dynamic is not None:
        return None
    if dst.dynamic is not None or dst.offset or dst.dtype is not tile.dtype:
        return None
    whole = dst.shape == tile.shape or (dst.shape[0] == tile.partitions and dst.nbytes == tile.nbytes)
    return tile if whole and dst.strides == contiguous_strides(dst.shape) else None
