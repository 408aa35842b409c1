"""Where the buffers of a core are while its plan runs: close together, so that they stay in the processor's caches.

The compiler's placement spreads tensors over the whole memory, so that the engines overlap. Which bytes a tensor has
cannot be seen in results, and here a tensor gets those that were used last. Explicit addresses stay as they are, and so
do tensors that the NumPy machine watches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.native.forward import Elsewhere, Forwarded
from nki.native.proof import Proven
from nki.native.words import Place
from nki.sim.memory import LiveStorage, placed_memory
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
FIRST_BUFFER = 8
_LINE = 64
"""Bytes between rows beyond what they need: rows that are a power of two apart share cache sets."""


class Chunk(NamedTuple):
    """Bytes of the pool: `start` of the first row, and the distance of rows."""

    start: int
    pitch: int


class Layout:
    """The numbers of the base addresses of a core, and the offsets from there.

    Attributes:
        buffers: all but the inputs, in program order.
        pool_bytes: size of the memory that on-chip tensors share.
    """

    def __init__(self, program: Program, proven: Proven, forwarded: Forwarded, target: Target) -> None:
        self.program = program
        self.proven = proven
        self.buffers = list(program.body.all_buffers())
        self._chunks: dict[int, Chunk] = {}
        self._places: dict[int, Place] = {}
        self._bases = FIRST_BUFFER
        self.pool_bytes = _Pool(proven.doubtful | forwarded.places.keys()).block(program.body, self._chunks)
        memory = placed_memory(program, target)
        for buffer in (*program.inputs, *self.buffers):
            watched = buffer.on_chip and buffer.id not in self._chunks
            self._places[buffer.id] = self._place(buffer, memory.allocate(buffer) if watched else None)
        self._elsewhere = forwarded.places
        for key, elsewhere in forwarded.places.items():
            self._places[key] = elsewhere.at(self._places[elsewhere.buffer])

    def _place(self, buffer: Buffer, watched: LiveStorage | None) -> Place:
        chunk = self._chunks.get(buffer.id)
        if chunk is not None:
            return Place(POOL, chunk.start, chunk.pitch, chunk.start)
        if watched is not None:
            return Place(ON_CHIP[buffer.region], watched.start, watched.pitch)
        self._bases += 1
        return Place(self._bases - 1, 0, buffer.row_bytes)

    @property
    def bases(self) -> int:
        """How many base addresses there are."""
        return self._bases

    def place(self, buffer: Buffer) -> Place:
        """Where a buffer is."""
        return self._places[buffer.id]

    def chunk(self, buffer: Buffer) -> Chunk | None:
        """The bytes of the pool that a buffer has, if it has any."""
        return self._chunks.get(buffer.id)

    def elsewhere(self, buffer: Buffer) -> Elsewhere | None:
        """The device memory that a tensor is, if it is."""
        return self._elsewhere.get(buffer.id)

    def register(self, engine: Engine, path: str) -> Place:
        """Where the accumulator registers of an engine are."""
        return Place(REGISTERS[engine, path], 0, 4)


class _Pool:
    """Gives out bytes in the order of a program; those that were given back last come first."""

    def __init__(self, watched: frozenset[int]) -> None:
        self._watched = watched
        self._free: dict[tuple[int, int], list[Chunk]] = {}
        self._end = 0

    def block(self, block: Block, chunks: dict[int, Chunk]) -> int:
        """Place the buffers of a block and of the loops in it; returns how many bytes were ever needed."""
        own = {b.id: b for b in block.buffers if b.on_chip and b.address is None and b.id not in self._watched}
        touched = [tuple(_touched(item)) for item in block.items]
        last = {key: position for position, keys in enumerate(touched) for key in keys}
        ending: dict[int, list[int]] = {}
        for key, position in last.items():
            if key in own:
                ending.setdefault(position, []).append(key)
        for key in own.keys() - last.keys():
            chunks[key] = self._take(own[key])
        for position, item in enumerate(block.items):
            for key in touched[position]:
                if key in own and key not in chunks:
                    chunks[key] = self._take(own[key])
            if not isinstance(item, Issued):
                self.block(item.body, chunks)
            for key in ending.get(position, ()):
                self._give(own[key], chunks[key])
        return self._end

    def _take(self, buffer: Buffer) -> Chunk:
        free = self._free.get((buffer.partitions, buffer.row_bytes))
        if free:
            return free.pop()
        pitch = -(-buffer.row_bytes // _LINE) * _LINE + (_LINE if buffer.row_bytes > _LINE else 0)
        chunk = Chunk(self._end, pitch)
        self._end += pitch * buffer.partitions
        return chunk

    def _give(self, buffer: Buffer, chunk: Chunk) -> None:
        self._free.setdefault((buffer.partitions, buffer.row_bytes), []).append(chunk)


def _touched(item: Issued | ForLoop | WhileLoop) -> Iterator[int]:
    for issued in (item,) if isinstance(item, Issued) else item.body.walk():
        for _, view in issued.views():
            yield view.buffer.id
            index = view.dynamic.indices if view.dynamic is not None else None
            if isinstance(index, View):
                yield index.buffer.id
