"""Register pressure: no more registers may be live at once than a sequencer has."""

from __future__ import annotations

from bisect import bisect_right

from nki.core.errors import VerificationError
from nki.core.source import Location
from nki.passes.analysis.liveness import Liveness, RegisterRange
from nki.passes.analysis.memory_usage import ROWS, place_of
from nki.spec.program import Program
from nki.target.model import Target

_ISA = "nki/api/nki/isa register_alloc"


def check_registers(program: Program, live: Liveness, target: Target) -> None:
    """Raise VerificationError "memory.registers" if a program needs too many registers.

    Any register may be needed on any engine, so that all count together; what an instruction reads and what it writes
    are live together.
    """
    limit = target.registers_per_sequencer
    if len(live.registers) <= limit:
        return
    position, needed = _worst(live.registers)
    if needed > limit:
        raise _too_many(
            program, [each for each in live.registers if each.first <= position <= each.last], position, target
        )


def _worst(registers: tuple[RegisterRange, ...]) -> tuple[int, int]:
    """The first position where most are live, and how many: pressure only rises where a register begins."""
    firsts, lasts = [each.first for each in registers], sorted(each.last for each in registers)
    pressure = [(bisect_right(firsts, at) - bisect_right(lasts, at - 1), -at) for at in firsts]
    needed, before = max(pressure)
    return -before, needed


def _too_many(program: Program, live: list[RegisterRange], position: int, target: Target) -> VerificationError:
    where = [issued.location for issued in program.body.walk()]
    longest = sorted(live, key=lambda each: (each.first - each.last, each.first, each.register.id))
    return VerificationError(
        "memory.registers",
        f"{len(live)} registers are live at once\n{_table(longest, where)}",
        rule=f"a sequencer of {target.name} has {target.registers_per_sequencer} registers",
        source=_ISA,
        facts={"needed": len(live), "capacity": target.registers_per_sequencer, "position": position},
        fix="compute offsets where they are used, or keep them in an int32 tensor and load them one by one",
        location=where[position],
    )


def _table(live: list[RegisterRange], where: list[Location]) -> str:
    lines = [f"  {'from':<24}  to"]
    lines += [f"  {place_of(where[each.first]):<24}  {place_of(where[each.last])}" for each in live[:ROWS]]
    if live[ROWS:]:
        lines.append(f"  {len(live) - ROWS} more")
    return "\n".join(lines)
