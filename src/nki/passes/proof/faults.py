"""What a proof of a schedule can find, in words for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nki.core.source import Location
from nki.passes.analysis.footprints import Footprint
from nki.passes.proof.conflicts import Conflict
from nki.spec.program import Issued
from nki.spec.rule import Finding, Severity

Fault = Literal["deadlock", "signal", "queue", "unscheduled", "edge", "meeting", "fixed"]
_ORDER_FIX = "let the second one wait for a signal that comes with or after the completion of the first one"
_CORES_FIX = "put nisa.core_barrier(tensor, cores=(0, 1)) between both accesses, on both cores"
_NAMES = {"raw": "read after write", "war": "write after read", "waw": "write after write"}


@dataclass(frozen=True, slots=True)
class Race:
    """Two instructions whose order is not certain although it matters, or a schedule that cannot run.

    Attributes:
        kind: "raw", "war" or "waw" for bytes, "state" for registers and the like, or a `Fault`.
        first, second: the instructions, of two accesses in the order of the program; one may be all there is.
        bytes: what they share: places in memory, or the name of a register or state.
        cores: of both instructions.
        message, fix: for people.
    """

    kind: str
    first: Issued
    second: Issued | None
    bytes: str
    cores: tuple[int, int]
    message: str
    fix: str

    @property
    def location(self) -> Location:
        """The line of the later instruction."""
        return (self.second or self.first).location

    @property
    def code(self) -> str:
        """Stable code of the fault."""
        return CODES["cores"] if self.cores[0] != self.cores[1] else CODES.get(self.kind, CODES["race"])

    def finding(self, severity: Severity) -> Finding:
        """This race as a finding of a severity."""
        facts = {"bytes": self.bytes, "kind": self.kind, "cores": str(self.cores)}
        return Finding(self.code, severity, self.message, _RULE, "", self.fix, self.location, facts)


_RULE = "accesses to the same bytes, at least one of them a write, happen in a certain order"
CODES = {
    "race": "schedule.race",
    "cores": "cores.race",
    "deadlock": "schedule.deadlock",
    "signal": "schedule.signal",
    "queue": "schedule.queue",
    "unscheduled": "schedule.queue",
    "meeting": "schedule.meeting",
}
"""Code of a fault by its kind; conflicts of bytes and of state on one core are "race"."""


def unordered(first: Issued, second: Issued, conflict: Conflict, core: int, other: int | None = None) -> Race:
    """Two accesses to the same bytes that nothing orders."""
    shared = _shared(conflict.first, conflict.second)
    cores = (core, core if other is None else other)
    both = f"{_place(first, cores, 0)} and {_place(second, cores, 1)}"
    text = f"{both} share {shared} ({_NAMES[conflict.kind]}), but nothing orders them"
    fix = _ORDER_FIX if other is None else _CORES_FIX
    return Race(conflict.kind, first, second, shared, cores, text, fix)


def state_race(first: Issued, second: Issued, what: str, core: int) -> Race:
    """Two uses of a register or of state of an engine that nothing orders."""
    cores = (core, core)
    text = f"{_place(first, cores, 0)} and {_place(second, cores, 1)} share {what}, but nothing orders them"
    return Race("state", first, second, what, cores, text, _ORDER_FIX)


def broken(kind: Fault, first: Issued, second: Issued | None, core: int, what: str = "") -> Race:
    """A schedule that cannot run, or that breaks an order which the kernel asked for."""
    cores = (core, core)
    one = _place(first, cores, 0)
    two = "" if second is None else _place(second, cores, 1)
    text, fix = {
        "deadlock": (f"{one} waits for {two}, which waits for it in turn", "wait for instructions that come earlier"),
        "signal": (f"{one} waits for {what}", "let the instruction that it needs signal its completion"),
        "queue": (f"{one}: {what}", "give it the queue of its engine, or one of the DMA queues of the target"),
        "unscheduled": (f"{one} has no queue in a synchronised block", "give every instruction of the block a queue"),
        "edge": (f"{one} may start before {two or what}, which the kernel put before it", _ORDER_FIX),
        "fixed": (f"{one}: {what}", 'give the input the role "input"'),
        "meeting": (f"{one}: {what}", "call it on both cores: move it out of the branch on nl.program_id"),
    }[kind]
    return Race(kind, first, second, what, cores, text, fix)


def _place(issued: Issued, cores: tuple[int, int], which: int) -> str:
    where = f" on core {cores[which]}" if cores[0] != cores[1] else ""
    return f"{issued.instruction.label} at {issued.location}{where}"


def _shared(a: Footprint, b: Footprint) -> str:
    """The place that two accesses share, as far as it is one rectangle."""
    rows = "" if a.hbm else f"partitions {max(a.first, b.first)}:{min(a.after, b.after)}, "
    return f"{a.label} {rows}bytes {max(a.low, b.low)}:{min(a.high, b.high)}"
