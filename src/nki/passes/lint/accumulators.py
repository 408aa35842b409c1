"""Sums in the accumulator registers of an engine that nobody began, or that another instruction has begun anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from nki.passes.analysis.memory_usage import place_of
from nki.passes.lint.control_flow import ControlFlow
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.program import ForLoop, Issued, Program, WhileLoop
from nki.spec.rule import Finding

_SOURCE = "nki/api/nki/isa, reduce_cmd"


def accumulator_findings(program: Program) -> list[Finding]:
    """Warnings about sums that go on from registers which hold something else, in the order of the program.

    Certain ones: of loops whose trips are not known nothing is said, nor of what comes after them.

    Codes: ``accumulator.undefined``, ``accumulator.clobbered``.
    """
    walk = _Sums()
    walk.block(program.body, certain=True)
    return walk.found


@dataclass(slots=True)
class _Sum:
    """What the registers of an engine hold.

    Attributes:
        begun: the instruction that began it; None if nothing did.
        read: whether the instruction that began it has written it out as well.
        lost: what had begun the sum before, which nobody had read.
        open: whether nobody has read it yet.
    """

    begun: Issued | None = None
    read: bool = False
    lost: Issued | None = None
    open: bool = False


@dataclass(slots=True)
class _Sums(ControlFlow):
    found: list[Finding] = field(default_factory=list)
    sums: dict[Engine, _Sum | None] = field(default_factory=dict)

    def loop(self, loop: ForLoop | WhileLoop, trips: int | None, certain: bool) -> None:
        """Follow the body of a loop, and once more for what a trip does to the one before."""
        for _ in range(1 if trips is None else min(trips, 2)):
            self.block(loop.body, certain=certain)

    def instruction(self, issued: Issued, certain: bool) -> None:
        """In a block that may not run, everything becomes uncertain."""
        if "accumulator" not in issued.instruction.effects(issued.arguments):
            return
        if not certain:
            self.sums[issued.engine] = None
            return
        before = self.sums.setdefault(issued.engine, _Sum())
        command = getattr(issued.arguments, "reduce_cmd", reduce_cmd.reset_reduce)
        result = getattr(issued.arguments, "reduce_res", None) is not None
        if command in (reduce_cmd.reset, reduce_cmd.reset_reduce, reduce_cmd.load_reduce):
            lost = before.begun if before is not None and before.open else None
            self.sums[issued.engine] = _Sum(issued, result, lost, not result)
            return
        if before is None:
            return
        if before.begun is None:
            if command is reduce_cmd.reduce or result:
                self._tell(_undefined(issued))
        elif command is reduce_cmd.reduce and before.read and before.lost is not None:
            self._tell(_clobbered(issued, before.begun, before.lost))
        if command is reduce_cmd.idle and issued.engine is Engine.vector:
            self.sums[issued.engine] = _Sum()  # it may have changed them
        elif result:
            before.open = False

    def _tell(self, finding: Finding) -> None:
        if finding not in self.found:
            self.found.append(finding)


def _undefined(issued: Issued) -> Finding:
    return Finding(
        "accumulator.undefined",
        "warning",
        f"{issued.instruction.label} goes on with the accumulator registers of {issued.engine.name}, which nothing has "
        "set, or which an instruction with reduce_cmd.idle may have changed",
        "a sum in the accumulator registers begins with a command that sets them",
        _SOURCE,
        "begin with reduce_cmd=nisa.reduce_cmd.reset_reduce",
        issued.location,
        {"engine": issued.engine.name},
    )


def _clobbered(issued: Issued, begun: Issued, lost: Issued) -> Finding:
    return Finding(
        "accumulator.clobbered",
        "warning",
        f"{issued.instruction.label} adds to what {_at(begun)} left in the accumulator registers of "
        f"{issued.engine.name}; the sum that {_at(lost)} began there is lost",
        "all reducing instructions of an engine share its accumulator registers",
        _SOURCE,
        f"write the sum out with reduce_res before {begun.instruction.label}, or reduce on the other engine",
        issued.location,
        {"engine": issued.engine.name, "begun": place_of(lost.location)},
    )


def _at(issued: Issued) -> str:
    return f"{issued.instruction.label} at {place_of(issued.location)}"
