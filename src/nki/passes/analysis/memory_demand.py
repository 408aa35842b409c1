"""What an allocator asks of SBUF and PSUM: how much there is, and what each live buffer takes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nki.core.tensor import Buffer, MemoryRegion
from nki.passes.analysis.live_intervals import Fixed, Item, Room
from nki.passes.analysis.liveness import Range
from nki.spec.program import Placement
from nki.target.model import Target

_new_tuple = tuple.__new__
"""Makes a named tuple in half the time."""


@dataclass(frozen=True, slots=True)
class OnChipMemory:
    """SBUF or PSUM of one core; sizes in bytes of each partition.

    Attributes:
        limit: bytes that allocation may use.
        align: least alignment of an address.
        unit: buffers take multiples of it, and start at one; 1 unless allocations start at a bank.
        bank: size of a bank that no small buffer may cross, 0 if there is no such limit.
    """

    region: MemoryRegion
    limit: int
    align: int
    unit: int = 1
    bank: int = 0

    @property
    def title(self) -> str:
        """Name of the memory in messages."""
        return self.region.value.upper()

    @property
    def room(self) -> Room:
        """Where buffers may lie that all begin at partition 0."""
        return Room(self.limit, self.bank)

    def size(self, buffer: Buffer) -> int:
        """Bytes of each partition that a buffer keeps from others."""
        return -(-buffer.row_bytes // self.unit) * self.unit

    def item(self, live: Range, start: int = 0) -> Item:
        """What a buffer without an address needs; it starts at a multiple of its element size, as NumPy likes it."""
        buffer, first, last = live
        size = self.size(buffer)
        align = max(self.align, self.unit, buffer.dtype.itemsize)
        align = self.bank if self.bank and size > self.bank else align
        return _new_tuple(Item, (first, last, size, buffer.partitions, align, start))

    def fixed(self, live: Range) -> Fixed:
        """What a buffer with an address takes."""
        buffer, first, last = live
        partition, start = buffer.address or (0, 0)
        end = start + buffer.row_bytes
        low, high = start // self.unit * self.unit, -(-end // self.unit) * self.unit
        return Fixed(first, last, low, high, partition, partition + buffer.partitions)


@dataclass(frozen=True, slots=True)
class Demand:
    """The live buffers of one memory: those to be placed, and those that have an address.

    Attributes:
        upper: ids of the automatic ones that begin at partition `half`; all others begin at partition 0.
    """

    memory: OnChipMemory
    automatic: tuple[Range, ...]
    explicit: tuple[Range, ...]
    upper: frozenset[int] = frozenset()
    half: int = 0

    @property
    def items(self) -> list[Item]:
        """What the automatic ones need, in their order."""
        return [self.memory.item(live, self.start(live)) for live in self.automatic]

    def start(self, live: Range) -> int:
        """The partition at which an automatic one begins."""
        return self.half if live.buffer.id in self.upper else 0

    @property
    def room(self) -> Room:
        """Where the automatic ones may lie."""
        return self.memory.room._replace(half=self.half) if self.upper else self.memory.room

    @property
    def fixed(self) -> list[Fixed]:
        """What the explicit ones take, in their order."""
        return [self.memory.fixed(live) for live in self.explicit]


def placed(needs: Demand, placement: Placement | None) -> Demand:
    """What the buffers ask for where they were placed."""
    starts = {number: partition for number, (partition, _) in (placement or {}).items() if partition}
    own = {live.buffer.id for live in needs.automatic} & starts.keys()
    return replace(needs, upper=frozenset(own), half=starts[min(own)]) if own else needs


def memories(target: Target) -> tuple[OnChipMemory, OnChipMemory]:
    """SBUF and PSUM of a target."""
    psum = target.psum
    whole_banks = psum.allocations_start_at_bank
    return (
        OnChipMemory(MemoryRegion.sbuf, target.sbuf.usable_bytes_per_partition, target.sbuf.min_align),
        OnChipMemory(
            MemoryRegion.psum,
            psum.banks * psum.bank_bytes,
            psum.min_align,
            psum.bank_bytes if whole_banks else 1,
            0 if whole_banks or target.pe.multi_bank_output else psum.bank_bytes,
        ),
    )


def demand(memory: OnChipMemory, ranges: Iterable[Range]) -> Demand:
    """The ranges of one memory, apart by whether they have an address."""
    own = [live for live in ranges if live.buffer.region is memory.region]
    return Demand(
        memory,
        tuple(live for live in own if live.buffer.address is None),
        tuple(live for live in own if live.buffer.address is not None),
    )
