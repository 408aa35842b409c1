"""Allocation: every live on-chip buffer without an address gets one, so that no two that live together share a byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nki.compiler import AddressRotation
from nki.core.errors import VerificationError
from nki.core.tensor import MemoryRegion
from nki.passes.allocation.fixed_addresses import demands
from nki.passes.allocation.packing import Packing, pack_rotating, pack_tight
from nki.passes.allocation.registers import check_registers
from nki.passes.allocation.spill import spill
from nki.passes.analysis.live_intervals import Fixed, Item, Room
from nki.passes.analysis.liveness import liveness
from nki.passes.analysis.memory_demand import Demand
from nki.passes.analysis.memory_usage import at_position, live_rows, place_of, table
from nki.passes.analysis.pressure import load, peak
from nki.passes.context import Context, Pass, PassResult
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.target.model import Target

_ARCH = "nki/guides/architecture/trainium_inferentia2_arch.rst"
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
"""How much of the memories spilling leaves in use, one after the other until the rest can be packed."""


class Layout(NamedTuple):
    """Where in SBUF tensors without an address may lie.

    Attributes:
        share: part of each partition's bytes that they may take.
        upper: ids of those that begin in the middle of the partitions, beside others that end there.
    """

    share: float = 1.0
    upper: frozenset[int] = frozenset()


EVERYWHERE = Layout()
"""All bytes, and every tensor begins at partition 0."""


def allocate(program: Program, context: Context, layout: Layout = EVERYWHERE, *, spilling: bool = False) -> PassResult:
    """The program with its `placement`: ``(partition, byte)`` of every live on-chip buffer without an explicit address.

    Buffers that are never used get none. Explicit addresses stay as they are, whatever `AddressRotation` says: kernels
    reach the same bytes through several tensors. Unless rotation is disabled, buffers are spread over the whole memory,
    so that instructions need not wait for bytes that were in use a moment ago; otherwise they are packed tightly.

    Args:
        program: the order of its instructions says what lives at the same time.
        context: of the compilation.
        layout: where in SBUF they may lie. Once something has to spill all of SBUF is used, from partition 0 on.
        spilling: whether tensors that do not fit wait elsewhere, with a finding for each, whatever the settings of the
            kernel say.

    Raises:
        VerificationError: more is live at once than there is (``memory.capacity``, ``memory.registers``).
    """
    live = liveness(program)
    check_registers(program, live, context.target)
    needs, found = demands(program, live, context.target)
    needs = [_within(each, layout, context.target) for each in needs]
    rotation = context.config.address_rotation
    packings = [_packed(each, live.positions, rotation) for each in needs]
    wrong = _overflowing(needs, packings)
    if wrong is not None:
        failure = overflow(program, needs[wrong], live.positions, packings[wrong])
        fitting = spilled(program, context) if spilling else None
        if fitting is None:
            raise failure
        return fitting
    return PassResult(replace(program, placement=_placement(needs, packings)), _told(found, context))


PASS = Pass(
    "addresses",
    "give every on-chip tensor an address, so that no two that live together share bytes",
    lambda before, context: allocate(before.program, context, spilling=context.config.spill),
)
"""Addresses for the order in which the kernel was written; `CompileConfig.spill` says whether tensors may spill."""


def _within(needs: Demand, layout: Layout, target: Target) -> Demand:
    """What the buffers of a memory need within a layout, which says something of SBUF only."""
    if needs.memory.region is not MemoryRegion.sbuf:
        return needs
    if layout.share < 1.0:
        needs = replace(needs, memory=replace(needs.memory, limit=round(layout.share * needs.memory.limit)))
    return replace(needs, upper=layout.upper, half=target.partitions // 2) if layout.upper else needs


def _packed(needs: Demand, positions: int, rotation: AddressRotation) -> Packing:
    """What `pack` makes of the needs, unless they cannot fit, because too much is live at once: then no offsets."""
    items, fixed = needs.items, needs.fixed
    needed = peak(items, fixed, positions) if items else 0
    return Packing((), needed) if needed > needs.memory.limit else _pack(items, fixed, needs.room, needed, rotation)


def pack(needs: Demand, positions: int, rotation: AddressRotation = AddressRotation.AUTO) -> Packing:
    """Offsets for the automatic buffers of one memory; the peak exceeds the limit if they do not fit."""
    items, fixed = needs.items, needs.fixed
    return _pack(items, fixed, needs.room, peak(items, fixed, positions), rotation)


def _pack(items: Sequence[Item], fixed: Sequence[Fixed], room: Room, needed: int, rotation: AddressRotation) -> Packing:
    """See `pack`; `needed` bytes are live at once."""
    if not items:
        return Packing((), 0)
    if rotation is not AddressRotation.DISABLE:
        packing = pack_rotating(items, fixed, room)
        if packing is not None:
            return packing
    return pack_tight(items, fixed, room, needed)


def spilled(program: Program, context: Context, most: float = 1.0) -> PassResult | None:
    """Allocation of what is left when the tensors that wait longest are moved away; None if too much is left.

    Args:
        program: of which too much is live at once.
        context: of the compilation.
        most: part of each memory that may be in use.
    """
    for share in (most, *(each for each in _SHARES if each < most)):
        # That no more is live than fits does not mean that a packing is found: each time there is more room for holes.
        smaller, spills = spill(program, context.target, share)
        live = liveness(smaller)
        needs, found = demands(smaller, live, context.target)
        packings = [pack(each, live.positions, context.config.address_rotation) for each in needs]
        if _overflowing(needs, packings) is None:
            placed = replace(smaller, placement=_placement(needs, packings))
            return PassResult(placed, _told([*found, *spills], context))
    return None


def _overflowing(needs: Sequence[Demand], packings: Sequence[Packing]) -> int | None:
    """The first memory that does not suffice."""
    pairs = zip(needs, packings, strict=True)
    return next((n for n, (each, packing) in enumerate(pairs) if packing.peak > each.memory.limit), None)


def _placement(needs: Sequence[Demand], packings: Sequence[Packing]) -> dict[int, tuple[int, int]]:
    return {
        live.buffer.id: (each.start(live), offset)
        for each, packing in zip(needs, packings, strict=True)
        for live, offset in zip(each.automatic, packing.offsets, strict=True)
    }


def _told(findings: Sequence[Finding], context: Context) -> tuple[Finding, ...]:
    """The findings of rules that are not switched off."""
    return tuple(finding for finding in findings if finding.code not in context.options.disabled_rules)


def overflow(program: Program, needs: Demand, positions: int, packing: Packing) -> VerificationError:
    """The error for buffers that do not fit: where, how much, who, and what to do."""
    memory = needs.memory
    bytes_live = load(needs.items, needs.fixed, positions)
    position = int(bytes_live.argmax())
    needed, rows = int(bytes_live[position]), live_rows(needs, position)
    at = at_position(program, position)
    assert at is not None, "something is live"
    return VerificationError(
        "memory.capacity",
        f"{_need(needs, needed, packing)}, at {at.instruction.label}\n{table(rows)}",
        rule=_capacity(needs, program.target),
        source=_ARCH,
        facts={
            "memory": memory.title,
            "capacity": memory.limit,
            "needed": needed,
            "packed": packing.peak,
            "position": position,
            "tensors": [str(row.as_json()) for row in rows],
        },
        fix=_fix(needs, position, needed),
        location=at.location,
    )


def _fix(needs: Demand, position: int, needed: int) -> str:
    fixed = [live.buffer for live in needs.explicit if live.first <= position <= live.last]
    if needed <= needs.memory.limit and fixed:
        largest = max(fixed, key=lambda buffer: (buffer.row_bytes, -buffer.id))
        return f"omit the address of {largest.name} ({place_of(largest.location)})"
    return f"make the tensors of {live_rows(needs, position)[0].place} smaller, or use them over fewer instructions"


def _need(needs: Demand, needed: int, packing: Packing) -> str:
    memory = needs.memory
    if needed <= memory.limit:
        around = " around those with an explicit address" if needs.explicit else ""
        return (
            f"no way was found to place the {memory.title} tensors{around}: {needed} bytes of each partition are live "
            f"at once, but {packing.peak} would be taken"
        )
    if memory.unit > 1:
        return f"{needed // memory.unit} {memory.title} banks are needed at once"
    return f"{needed} bytes of each {memory.title} partition are needed at once"


def _capacity(needs: Demand, target: str) -> str:
    memory = needs.memory
    if memory.unit > 1:
        return f"{target} has {memory.limit // memory.unit} {memory.title} banks of {memory.unit} bytes per partition"
    return f"{memory.limit} bytes of each {memory.title} partition of {target} can be allocated"
