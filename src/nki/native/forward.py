"""Transfers that need not be made: a tensor that is a copy of device memory, or becomes one, can be that memory.

A kernel loads a tile, computes, and stores a tile. If the device memory of a loaded tile never changes, whoever reads
the tile may as well read the device memory; if a tile is stored once, to where nobody looks before, whoever writes the
tile may as well write there. Only the executor does this; the program, its checks and its timing stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.native.forms import Form
from nki.native.moves import Copy
from nki.native.proof import Proven
from nki.native.records import PITCH, symbolic_dims
from nki.native.words import Place, refined
from nki.spec.program import Block, Issued, Program

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
        return Place(place.base, place.start + self.start, self.pitch, place.memory)


class Forwarded(NamedTuple):
    """What need not be copied.

    Attributes:
        places: where the tiles are instead, by the id of their buffer.
        skipped: identities of the transfers that are not made.
    """

    places: Mapping[int, Elsewhere]
    skipped: frozenset[int]


NOTHING = Forwarded({}, frozenset())


class _Use(NamedTuple):
    position: int
    issued: Issued
    reads: bool
    writes: bool


def forwarded(
    program: Program, proven: Proven, forms: FormOf, constant: frozenset[int], unread: frozenset[int]
) -> Forwarded:
    """The transfers of a program that need not be made.

    `constant` are device buffers that nobody writes; `unread` are such that nobody reads before the program ends.
    """
    places: dict[int, Elsewhere] = {}
    skipped: set[int] = set()
    stores: dict[int, list[tuple[Issued, Buffer, Elsewhere]]] = {}
    for block in _blocks(program.body):
        uses, inner = _uses(block)
        for buffer in block.buffers:
            known = uses.get(buffer.id)
            if known is None or buffer.id in inner or not _movable(buffer, proven):
                continue
            loaded = _load(buffer, known, forms, constant)
            if loaded is not None and _aligned(loaded[1], buffer, known):
                places[buffer.id] = loaded[1]
                skipped.add(id(loaded[0]))
                continue
            stored = _store(buffer, known, forms, unread)
            if stored is not None and _aligned(stored[1], buffer, known):
                stores.setdefault(stored[1].buffer, []).append((stored[0], buffer, stored[1]))
    for key, found in stores.items():
        if _disjoint(program, key, found, forms):
            places.update({buffer.id: place for _, buffer, place in found})
            skipped.update(id(issued) for issued, _, _ in found)
    return Forwarded(places, frozenset(skipped))


def _blocks(block: Block) -> list[Block]:
    found = [block]
    for item in block.items:
        if not isinstance(item, Issued):
            found += _blocks(item.body)
    return found


def _uses(block: Block) -> tuple[dict[int, list[_Use]], set[int]]:
    """Who touches which buffer in this block itself, and the buffers that loops in it touch."""
    uses: dict[int, list[_Use]] = {}
    inner: set[int] = set()
    for position, item in enumerate(block.items):
        if not isinstance(item, Issued):
            for issued in item.body.walk():
                inner |= _keys(issued)
            continue
        inner |= {
            v.dynamic.indices.buffer.id for _, v in item.views() if v.dynamic and isinstance(v.dynamic.indices, View)
        }
        for name, view in item.views():
            operand = item.instruction.operands[name]
            uses.setdefault(view.buffer.id, []).append(_Use(position, item, operand.reads, operand.writes))
    return uses, inner


def _keys(issued: Issued) -> set[int]:
    keys = set()
    for _, view in issued.views():
        keys.add(view.buffer.id)
        if view.dynamic is not None and isinstance(view.dynamic.indices, View):
            keys.add(view.dynamic.indices.buffer.id)
    return keys


def _movable(buffer: Buffer, proven: Proven) -> bool:
    return buffer.region is MemoryRegion.sbuf and buffer.address is None and buffer.id not in proven.doubtful


def _copy(issued: Issued, forms: FormOf) -> Copy | None:
    """The copy that an instruction is, with its own operands."""
    form = forms(issued)
    if form is None or form.native is None or not isinstance(form.native.move, Copy) or not form.function:
        return None
    dst, src = (source.of(issued.arguments) for source in form.native.sources)  # type: ignore[union-attr]
    return form.native.move._replace(dst=dst, src=src)


def _load(
    buffer: Buffer, uses: Sequence[_Use], forms: FormOf, constant: frozenset[int]
) -> tuple[Issued, Elsewhere] | None:
    writers = [use for use in uses if use.writes]
    if len(writers) != 1 or writers[0].reads:
        return None
    issued = writers[0].issued
    copy = _copy(issued, forms)
    if copy is None or copy.dst.buffer is not buffer or copy.src.buffer.id not in constant:
        return None
    if any(use.issued is not issued and use.position < writers[0].position for use in uses):
        return None
    place = _rows(copy.dst, copy.src, copy.axes)
    return None if place is None else (issued, place)


def _store(
    buffer: Buffer, uses: Sequence[_Use], forms: FormOf, unread: frozenset[int]
) -> tuple[Issued, Elsewhere] | None:
    copies = [use for use in uses if use.reads and _copy(use.issued, forms) is not None]
    copies = [use for use in copies if _copy(use.issued, forms).dst.buffer.id in unread]  # type: ignore[union-attr]
    if len(copies) != 1 or any(use.writes and use.position >= copies[0].position for use in uses):
        return None
    copy = _copy(copies[0].issued, forms)
    assert copy is not None, "chosen because it is one"
    if copy.src.buffer is not buffer or copy.src.nbytes != buffer.nbytes or copy.axes is not None:
        return None
    place = _rows(copy.src, copy.dst, None)
    return None if place is None else (copies[0].issued, place)


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


def _aligned(place: Elsewhere, buffer: Buffer, uses: Sequence[_Use]) -> bool:
    """Whether the elements of all views of a tile can be counted from its first one there as well."""
    views = [view for use in uses for _, view in use.issued.views() if view.buffer.id == buffer.id]
    return all(place.start % view.dtype.itemsize == place.pitch % view.dtype.itemsize == 0 for view in views)


def _disjoint(program: Program, key: int, found: Sequence[tuple[Issued, Buffer, Elsewhere]], forms: FormOf) -> bool:
    """Whether everything that is written to a device buffer goes to bytes of its own."""
    copies = {id(issued) for issued, _, _ in found}
    places = [place for _, _, place in found]
    partitions = [buffer.partitions for _, buffer, _ in found]
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
