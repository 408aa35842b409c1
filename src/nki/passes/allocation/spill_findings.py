"""What is told of spilling: how many bytes move, and whose tensors they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion
from nki.passes.analysis.memory_demand import OnChipMemory
from nki.passes.analysis.memory_usage import place_of
from nki.spec.program import Issued
from nki.spec.rule import Finding


class Move(NamedTuple):
    """A tensor that waits elsewhere between two uses.

    Attributes:
        after, before: where it is used for the last time, and where again.
        load: that brings it back from where it came from; None if it comes back from where it was copied to.
        saved: bytes that are copied there; a copy that is still good is not made again.
        loaded: bytes that come back.
    """

    buffer: Buffer
    after: Location
    before: Location
    load: Issued | None
    saved: int
    loaded: int


def told(moves: Iterable[Move], memory: OnChipMemory) -> list[Finding]:
    """A finding for each line that makes tensors which wait elsewhere, and for each whose tensors are loaded again."""
    groups: dict[tuple[Location, bool], list[Move]] = {}
    for move in moves:
        groups.setdefault((move.buffer.location, move.load is None), []).append(move)
    found = [_finding(group, memory) for group in groups.values()]
    return sorted(found, key=lambda each: -each.facts["saved"] - each.facts["loaded"])


def _finding(group: Sequence[Move], memory: OnChipMemory) -> Finding:
    first = group[0]
    names = list(dict.fromkeys(move.buffer.name for move in group))
    saved = sum(move.saved for move in group)
    loaded = sum(move.loaded for move in group)
    away = "SBUF" if memory.region is MemoryRegion.psum else "HBM"
    one = len(names) == 1
    who = first.buffer.name if one else f"{first.buffer.name} and {len(names) - 1} more of its line"
    verb = "is" if one else "are"
    if len(group) == 1:
        where = f"from {place_of(first.after)} to {place_of(first.before)}"
    else:
        where = f"{len(group)} times, first from {place_of(first.after)} to {place_of(first.before)}"
    if first.load is not None:
        message = f"{who} {verb} dropped {where}, and loaded again: {loaded} bytes are read from HBM"
    else:
        message = f"{who} {verb} kept in {away} {where}: {saved} bytes are written and {loaded} read"
    return Finding(
        "memory.spill",
        "warning",
        message,
        f"{memory.limit} bytes of each {memory.title} partition can be allocated",
        "nki/deep-dives/nki_perf_guide.rst",
        "use smaller tiles, or bring their uses together",
        first.buffer.location,
        {
            "tensor": first.buffer.name,
            "tensors": len(names),
            "saved": saved,
            "loaded": loaded,
            "memory": memory.title,
        },
    )
