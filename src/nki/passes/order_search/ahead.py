"""How much of SBUF loads may run ahead in.

Addresses of tiles go round a part of SBUF, and that part is large enough for two copies of what a loop allocates in
every trip: one is filled while the other is computed on. Published kernels tell both bounds. The fused Mamba layer
stays at half of SBUF although loads come late for lack of room. A product with blocks of 12 x 4 tiles, of which two and
the sums take 122 KiB, loads at the full rate all the time. Tiles of 112 KiB, of which no two have room, are not loaded
ahead.
"""

from __future__ import annotations

from nki.core.tensor import MemoryRegion
from nki.passes.context import Context
from nki.spec.program import Program


def share_ahead(program: Program, context: Context, share: float) -> float:
    """The part of SBUF in which loads run ahead: `share`, or more if two copies need it and have room."""
    wanted = doubled(program) / context.target.sbuf.usable_bytes_per_partition
    return wanted if share < wanted <= 1.0 else share


def doubled(program: Program) -> int:
    """Bytes of a partition that two tiles of each line of a loop take, and one of each other line.

    A line that allocates several tiles without an address stands in a loop; of tiles of several sizes the largest
    counts.
    """
    lines: dict[object, tuple[int, int]] = {}
    for buffer in program.body.all_buffers():
        if buffer.region is MemoryRegion.sbuf and buffer.address is None:
            count, most = lines.get(buffer.location, (0, 0))
            lines[buffer.location] = (count + 1, max(most, buffer.row_bytes))
    return sum(min(count, 2) * most for count, most in lines.values())
