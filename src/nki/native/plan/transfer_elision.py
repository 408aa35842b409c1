"""Transfers that need not be made: a tensor that is a copy of device memory, or becomes one, can be that memory.

A kernel loads a tile, computes, and stores a tile. If the device memory of a loaded tile never changes, whoever reads
the tile may as well read the device memory; if a tile is stored once, to where nobody looks before, whoever writes the
tile may as well write there. Only the executor does this; the program, its checks and its timing stay as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.native.operand_layout import Place, refined
from nki.native.plan.definite_initialization import Proven
from nki.native.plan.tile_versions import Renamed, TileUse, blocks, uses_of, versions_of
from nki.native.records.forms import Form
from nki.native.records.moves import Copy
from nki.native.records.templates import PITCH, symbolic_dims
from nki.spec.program import Issued, Program

FormOf = Callable[[Issued], Form | None]
_MOST_CELLS = 1 << 22


class Elsewhere(NamedTuple):
    """The rows of a tile in another buffer: partition p is the bytes from ``start + p * pitch`` of that."""

    buffer: int
    start: int
    pitch: int
    row_bytes: int

    def at(self, place: Place) -> Place:
        """The place of the tile, given that of the other buffer."""
        return place._replace(start=place.start + self.start, pitch=self.pitch)


class Forwarded(NamedTuple):
    """What need not be copied.

    Attributes:
        places: where the tiles are instead, by the id of their buffer; versions of tiles have ids of their own.
        skipped: identities of the transfers that are not made.
        renamed: operands that name a version of a tile.
    """

    places: Mapping[int, Elsewhere]
    skipped: frozenset[int]
    renamed: Sequence[Renamed]


class _Tile(NamedTuple):
    """A tile in SBUF or a version of one.

    Attributes:
        key: the id of the buffer, or a new one.
    """

    key: int
    buffer: Buffer
    uses: Sequence[TileUse]

    def renamed(self) -> list[Renamed]:
        """The operands to be renamed to this version of a tile, if it has a place of its own; else none."""
        tile = self.buffer.id
        return [] if self.key == tile else [Renamed(use.issued, use.writes, tile, self.key) for use in self.uses]


class _TileStore(NamedTuple):
    """A tile, the transfer that stores it, and where to."""

    tile: _Tile
    issued: Issued
    place: Elsewhere


def forwarded(
    program: Program, proven: Proven, forms: FormOf, constant: frozenset[int], unread: frozenset[int]
) -> Forwarded:
    """The transfers of a program that need not be made.

    `constant` are device buffers that nobody writes; `unread` are such that nobody reads before the program ends.
    """
    places: dict[int, Elsewhere] = {}
    skipped: set[int] = set()
    renamed: list[Renamed] = []
    stores: dict[int, list[_TileStore]] = {}
    for tile in _tiles(program, proven):
        loaded = _load(tile, forms, constant)
        if loaded is not None and _aligned(loaded[1], tile):
            places[tile.key] = loaded[1]
            skipped.add(id(loaded[0]))
            renamed += tile.renamed()
            continue
        stored = _store(tile, forms, unread)
        if stored is not None and _aligned(stored.place, tile):
            stores.setdefault(stored.place.buffer, []).append(stored)
    # Such a tile writes to device memory earlier than its store did, so that all writes there must be to bytes apart.
    for key, found in stores.items():
        if _disjoint(program, key, found, forms):
            places.update({store.tile.key: store.place for store in found})
            skipped.update(id(store.issued) for store in found)
            renamed += [each for store in found for each in store.tile.renamed()]
    return Forwarded(places, frozenset(skipped), renamed)


def _tiles(program: Program, proven: Proven) -> list[_Tile]:
    found = []
    ids = itertools.count(max([buffer.id for buffer in (*program.inputs, *program.body.all_buffers())], default=0) + 1)
    for block in blocks(program.body):
        uses, inner = uses_of(block)
        for buffer in block.buffers:
            known = uses.get(buffer.id)
            if known is None or buffer.id in inner or not _movable(buffer, proven):
                continue
            versions = versions_of(known)
            several = len(versions) > 1
            found += [_Tile(next(ids) if several else buffer.id, buffer, version) for version in versions]
    return found


def _movable(buffer: Buffer, proven: Proven) -> bool:
    return buffer.region is MemoryRegion.sbuf and buffer.address is None and buffer.id not in proven.doubtful


def _copy(issued: Issued, forms: FormOf) -> Copy | None:
    """The copy that an instruction is, with its own operands."""
    form = forms(issued)
    if form is None or form.native is None or not isinstance(form.native.move, Copy) or not form.function:
        return None
    dst, src = (source.of(issued.arguments) for source in form.native.sources)  # type: ignore[union-attr]
    return form.native.move._replace(dst=dst, src=src)


def _load(tile: _Tile, forms: FormOf, constant: frozenset[int]) -> tuple[Issued, Elsewhere] | None:
    writers = [use for use in tile.uses if use.writes]
    if len(writers) != 1 or writers[0].reads:
        return None
    issued = writers[0].issued
    copy = _copy(issued, forms)
    if copy is None or copy.dst.buffer is not tile.buffer or copy.src.buffer.id not in constant:
        return None
    if any(use.issued is not issued and use.position < writers[0].position for use in tile.uses):
        return None
    place = _rows(copy.dst, copy.src, copy.axes)
    return None if place is None else (issued, place)


def _store(tile: _Tile, forms: FormOf, unread: frozenset[int]) -> _TileStore | None:
    copies = [use for use in tile.uses if use.reads and _copy(use.issued, forms) is not None]
    copies = [use for use in copies if _copy(use.issued, forms).dst.buffer.id in unread]  # type: ignore[union-attr]
    if len(copies) != 1 or any(use.writes and use.position >= copies[0].position for use in tile.uses):
        return None
    copy = _copy(copies[0].issued, forms)
    assert copy is not None, "chosen because it is one"
    if copy.src.buffer is not tile.buffer or copy.src.nbytes != tile.buffer.nbytes or copy.axes is not None:
        return None
    place = _rows(copy.src, copy.dst, None)
    return None if place is None else _TileStore(tile, copies[0].issued, place)


def _rows(tile: View, device: View, axes: Sequence[int] | None) -> Elsewhere | None:
    """How the rows of a tile lie in device memory, if each is one piece and they are equally far apart."""
    if axes is not None or tile.offset != 0 or tile.dynamic is not None or device.dynamic is not None:
        return None
    both = refined(symbolic_dims(tile), symbolic_dims(device))
    if both is None:
        return None
    size, (there, here) = tile.dtype.itemsize, both
    width = tile.free_size * size
    inner = [(tile.free_size, size)] if tile.free_size > 1 else []
    outer = [(tile.shape[0], PITCH)] if tile.shape[0] > 1 else []
    if there != outer + inner or here[len(outer) :] != inner:
        return None
    pitch = here[0][1] if outer else width
    if pitch < width or pitch % size:
        return None
    return Elsewhere(device.buffer.id, device.offset * size, pitch, width)


def _aligned(place: Elsewhere, tile: _Tile) -> bool:
    """Whether the elements of all views of a tile can be counted from its first one there as well."""
    sizes = {use.view.dtype.itemsize for use in tile.uses}
    return all(place.start % size == place.pitch % size == 0 for size in sizes)


def _disjoint(program: Program, key: int, found: Sequence[_TileStore], forms: FormOf) -> bool:
    """Whether everything that is written to a device buffer goes to bytes of its own."""
    copies = {id(store.issued) for store in found}
    places = [store.place for store in found]
    partitions = [store.tile.buffer.partitions for store in found]
    for issued in program.body.walk():
        for name, view in issued.views():
            if view.buffer.id != key or not issued.instruction.operands[name].writes or id(issued) in copies:
                continue
            copy = _copy(issued, forms)
            place = None if copy is None or copy.dst.buffer.id != key else _rows(copy.src, copy.dst, copy.axes)
            if place is None:
                return False
            places.append(place)
            partitions.append(copy.src.shape[0])  # type: ignore[union-attr]
    pitches = {place.pitch for place, count in zip(places, partitions, strict=True) if count > 1}
    if len(pitches) > 1:
        return False
    pitch = pitches.pop() if pitches else max(place.row_bytes for place in places)
    return _apart(places, partitions, pitch)


def _apart(places: Sequence[Elsewhere], partitions: Sequence[int], pitch: int) -> bool:
    # All places begin and end at multiples of a cell, so that one mark for each cell is exact.
    cell = gcd(pitch, *[place.start for place in places], *[place.row_bytes for place in places])
    rows = max(place.start // pitch + count for place, count in zip(places, partitions, strict=True))
    if rows * (pitch // cell) > _MOST_CELLS:
        return False
    taken = np.zeros((rows, pitch // cell), bool)
    for place, count in zip(places, partitions, strict=True):
        row, column = divmod(place.start, pitch)
        if column + place.row_bytes > pitch:
            return False
        box = taken[row : row + count, column // cell : (column + place.row_bytes) // cell]
        if box.any():
            return False
        box[...] = True
    return True
