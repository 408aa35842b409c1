"""What the cores of a model exchange: transfers from core to core, meetings, and device memory that both use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nki.core.tensor import MemoryRegion, View
from nki.spec.program import Issued, Program

SEND = "sendrecv"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What cores exchange in one run, counted over all of them; instructions of a loop count once.

    Attributes:
        sends: transfers to another core.
        sent_bytes: that they move.
        meetings: instructions at which a core waits for the other one.
        shared_bytes: that a core reads of device memory which the other one writes.
    """

    sends: int = 0
    sent_bytes: int = 0
    meetings: int = 0
    shared_bytes: int = 0

    def facts(self) -> dict[str, int]:
        """By name, as spans take them."""
        return {
            "sends": self.sends,
            "sent_bytes": self.sent_bytes,
            "meetings": self.meetings,
            "shared_bytes": self.shared_bytes,
        }


def traffic(programs: Sequence[Program]) -> Traffic:
    """The traffic between the cores of a launch; none if there is one core."""
    if len(programs) < 2:
        return Traffic()
    sends = [view.nbytes for program in programs for view in _sent(program)]
    meetings = sum(
        1
        for program in programs
        for issued in program.body.walk()
        if "rendezvous" in issued.instruction.effects(issued.arguments)
    )
    return Traffic(len(sends), sum(sends), meetings, _shared(programs))


def _sent(program: Program) -> list[View]:
    """What a core sends to another one."""
    sends = [issued for issued in program.body.walk() if issued.instruction.name == SEND]
    return [issued.arguments.src for issued in sends if issued.arguments.send_to_rank != program.core]


def _shared(programs: Sequence[Program]) -> int:
    """Bytes read of memory that another core writes: the n-th shared buffer of each core is the same memory."""
    numbers = [
        {
            buffer.id: number
            for number, buffer in enumerate(
                b for b in program.body.all_buffers() if b.region is MemoryRegion.shared_hbm and b.data is None
            )
        }
        for program in programs
    ]
    touched = [
        [
            (numbers[core][view.buffer.id], view.nbytes, writes)
            for issued in program.body.walk()
            for view, writes in _accesses(issued)
            if view.buffer.id in numbers[core]
        ]
        for core, program in enumerate(programs)
    ]
    found = 0
    for core, own in enumerate(touched):
        others = {number for other, theirs in enumerate(touched) if other != core for number, _, w in theirs if w}
        found += sum(nbytes for number, nbytes, writes in own if number in others and not writes)
    return found


def _accesses(issued: Issued) -> list[tuple[View, bool]]:
    found = []
    for name, view in issued.views():
        operand = issued.instruction.operands[name]
        found += [(view, False)] if operand.reads else []
        found += [(view, True)] if operand.writes else []
    return found
