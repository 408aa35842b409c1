"""Where the buffers of a core are while its plan runs: close together, so that they stay in the processor's caches.

The compiler's placement spreads tensors over the whole memory, so that the engines overlap. Which bytes a tensor has
cannot be seen in results, and here a tensor gets those that were used last. Explicit addresses stay as they are, and so
do tensors that the NumPy machine watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.native.operand_layout import PANELS, Place, is_large
from nki.native.plan.definite_initialization import Proven
from nki.native.plan.tile_versions import Renamed
from nki.native.plan.transfer_elision import Elsewhere, Forwarded
from nki.sim.memory import Memory, reach_of
from nki.spec.engine import engine as Engine
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.target.model import Target

ON_CHIP = {MemoryRegion.sbuf: 1, MemoryRegion.psum: 2}
REGISTERS = {
    (Engine.vector, "accumulator"): 3,
    (Engine.vector, "defined"): 4,
    (Engine.scalar, "accumulator"): 5,
    (Engine.scalar, "defined"): 6,
}
POOL = 7
FIRST_BUFFER = PANELS + 1
_LINE = 64
"""Bytes between rows beyond what they need: rows that are a power of two apart share cache sets."""
_WIDER = 2
"""Times the row of a tensor that the rows of memory may have which is free and still in the caches."""


class Chunk(NamedTuple):
    """Bytes of the pool: `start` of the first row, and the distance of rows."""

    start: int
    pitch: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The numbers of the base addresses of a core, and the offsets from there.

    Attributes:
        inputs, outputs: of the program.
        buffers: all others that get memory when a call begins: device memory, and those that stay at their address.
        places: where these and the inputs are; of a program that was just planned, all buffers.
        chunks: the bytes of the pool that a tensor on chip has, by id.
        elsewhere: the device memory that a tensor on chip is, by id.
        renamed: operands that name a version of a tensor on chip.
        bases: how many base addresses there are.
        pool_bytes: size of the memory that on-chip tensors share.
        doubtful, complete: as in `Proven`.
        outermost: ids of the buffers that live as long as the program runs.
        reach: how many bytes of each partition are used.
        placement: ``(partition, byte)`` of those that the NumPy machine watches, by id.
    """

    inputs: Sequence[Buffer]
    outputs: Sequence[View]
    buffers: Sequence[Buffer]
    places: Mapping[int, Place]
    chunks: Mapping[int, Chunk]
    elsewhere: Mapping[int, Elsewhere]
    renamed: Sequence[Renamed]
    bases: int
    pool_bytes: int
    doubtful: frozenset[int]
    complete: frozenset[int]
    outermost: frozenset[int]
    reach: Mapping[MemoryRegion, int]
    placement: Mapping[int, tuple[int, int]]

    def place(self, buffer: Buffer) -> Place:
        """Where a buffer is."""
        return self.places[buffer.id]

    @staticmethod
    def register(engine: Engine, path: str) -> Place:
        """Where the accumulator registers of an engine are."""
        return Place(REGISTERS[engine, path], 0, 4)


def arrange(
    program: Program, proven: Proven, forwarded: Forwarded, versions: Mapping[int, Issued], target: Target
) -> Layout:
    """Give every buffer of a program a place; `versions` are instructions with versions of tiles, see `renamed`."""
    buffers = list(program.body.all_buffers())
    chunks: dict[int, Chunk] = {}
    pool_bytes = _Pool(proven.doubtful | forwarded.places.keys(), versions).block(program.body, chunks)
    placement, reach = program.placement or {}, reach_of(program)
    memory = Memory(target, placement=placement, reach=reach)
    places, bases = _places((*program.inputs, *buffers), chunks, memory)
    for key, elsewhere in forwarded.places.items():
        places[key] = elsewhere.at(places[elsewhere.buffer])
    at_address = ON_CHIP.values()
    return Layout(
        inputs=program.inputs,
        outputs=program.outputs,
        buffers=[b for b in buffers if not b.on_chip or places[b.id].base in at_address],
        places=places,
        chunks=chunks,
        elsewhere=forwarded.places,
        renamed=forwarded.renamed,
        bases=bases,
        pool_bytes=pool_bytes,
        doubtful=proven.doubtful,
        complete=proven.complete,
        outermost=frozenset(buffer.id for buffer in program.body.buffers),
        reach=reach,
        placement=placement,
    )


def _places(buffers: Iterable[Buffer], chunks: Mapping[int, Chunk], memory: Memory) -> tuple[dict[int, Place], int]:
    """Where each buffer lies (in the pool, on chip or at a base of its own), and the first base that is free."""
    places: dict[int, Place] = {}
    bases = FIRST_BUFFER
    for buffer in buffers:
        chunk = chunks.get(buffer.id)
        if chunk is not None:
            places[buffer.id] = Place(POOL, chunk.start, chunk.pitch, chunk.start)
        elif buffer.on_chip:
            watched = memory.allocate(buffer)
            places[buffer.id] = Place(ON_CHIP[buffer.region], watched.start, watched.pitch)
        else:
            places[buffer.id] = Place(bases, 0, buffer.row_bytes, large=is_large(buffer))
            bases += 1
    return places, bases


class _Pool:
    """Gives out bytes in the order of a program; those that were given back last come first."""

    def __init__(self, watched: frozenset[int], versions: Mapping[int, Issued]) -> None:
        self._watched = watched
        self._versions = versions
        self._free: dict[tuple[int, int], list[Chunk]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._end = 0

    def block(self, block: Block, chunks: dict[int, Chunk]) -> int:
        """Place the buffers of a block and of the loops in it; returns how many bytes were ever needed."""
        own = {b.id: b for b in block.buffers if b.on_chip and b.address is None and b.id not in self._watched}
        touched = [tuple(self._touched(item)) for item in block.items]
        last = {key: position for position, keys in enumerate(touched) for key in keys}
        ending: dict[int, list[int]] = {}
        for key, position in last.items():
            if key in own:
                ending.setdefault(position, []).append(key)
        # Nobody touches these: they have a place, and keep nobody else from it.
        for key in own.keys() - last.keys():
            chunks[key] = self._take(own[key])
            self._give(own[key], chunks[key])
        for position, item in enumerate(block.items):
            for key in touched[position]:
                if key in own and key not in chunks:
                    chunks[key] = self._take(own[key])
            if not isinstance(item, Issued):
                self.block(item.body, chunks)
            # Behind the places of results: an instruction must not write where it still reads.
            for key in ending.get(position, ()):
                self._give(own[key], chunks[key])
        return self._end

    def _take(self, buffer: Buffer) -> Chunk:
        """The smallest free rows that are long enough, and not much longer; else new ones."""
        row = buffer.row_bytes
        fitting = [
            key
            for key, free in self._free.items()
            if free and key[0] == buffer.partitions and row <= key[1] <= _WIDER * row
        ]
        if fitting:
            self._sizes[buffer.id] = key = min(fitting)
            return self._free[key].pop()
        self._sizes[buffer.id] = (buffer.partitions, row)
        pitch = -(-row // _LINE) * _LINE + (_LINE if row > _LINE else 0)
        chunk = Chunk(self._end, pitch)
        self._end += pitch * buffer.partitions
        return chunk

    def _give(self, buffer: Buffer, chunk: Chunk) -> None:
        self._free.setdefault(self._sizes[buffer.id], []).append(chunk)

    def _touched(self, item: Issued | ForLoop | WhileLoop) -> Iterator[int]:
        for issued in (item,) if isinstance(item, Issued) else item.body.walk():
            for _, view in self._versions.get(id(issued), issued).views():
                yield view.buffer.id
                index = view.dynamic.indices if view.dynamic is not None else None
                if isinstance(index, View):
                    yield index.buffer.id
