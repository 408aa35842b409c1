"""The whole program, compiled as a call does; for ``nki check --all``, everything that is certainly wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.core.errors import NkiError, UsageError
from nki.driver.gate import compile_kernel
from nki.options import Options
from nki.passes.analysis.memory_usage import MemoryUsage, table, usage
from nki.passes.check_races import program_races, refuse_races
from nki.passes.lint.accumulators import accumulator_findings
from nki.passes.lint.memory import memory_findings
from nki.passes.lint.value_range import value_findings
from nki.spec.program import Program
from nki.spec.rule import Finding, finding_of
from nki.target.model import Target

_TWICE = ("cores.race", "schedule.meeting")
"""What is found before and after compiling."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of the whole program.

    Attributes:
        findings: that tracing alone does not have.
        usage: SBUF and PSUM of core 0, as compiled; as traced if it could not be compiled.
        compiled: whether it went through all passes.
    """

    findings: tuple[Finding, ...]
    usage: tuple[MemoryUsage, ...]
    compiled: bool

    def to_json(self) -> dict[str, Any]:
        """JSON types only; the findings are elsewhere."""
        return {"compiled": self.compiled, "memory": [each.as_json() for each in self.usage]}


class CheckedProgram(NamedTuple):
    """What compiling came to: the programs, none if it was refused, and what was found."""

    programs: tuple[Program, ...]
    findings: tuple[Finding, ...]


def check_whole(programs: Sequence[Program], built: CheckedProgram, target: Target) -> Whole:
    """Look for what is wrong with traced programs, and add what compiling them found.

    Races between cores, reads of memory that nobody wrote, sums that start wrong, stores that nobody reads, numbers
    that are out of range.
    """
    found = [
        race.finding("warning" if race.code == "cores.race" else "error") for race in program_races(programs, target)
    ]
    found += memory_findings(programs, target)
    found += [finding for program in programs for finding in value_findings(program, target)]
    found += [finding for program in programs for finding in accumulator_findings(program)]
    shown = usage((built.programs or programs)[0], target)
    return Whole(tuple(_different([*found, *built.findings])), shown, bool(built.programs))


def compiled(programs: Sequence[Program], target: Target, options: Options, config: CompileConfig) -> CheckedProgram:
    """Compile traced programs as a call does: what it is refused for (capacity, registers), and what it is warned of.

    Of several cores, the schedule is proven as well (deadlocks, cores that do not meet), which a call finds out when it
    waits in vain; so are registers that certainly leave their tensor.
    """
    found = [f for program in programs for f in value_findings(program, target) if f.severity == "error"]
    try:
        with paused_collector():
            built = compile_kernel(programs, target, options, config)
        refuse_races(built.programs, target)
    except UsageError:
        raise
    except NkiError as error:
        return CheckedProgram((), (*found, *(error.found or (finding_of(error, "error"),))))
    return CheckedProgram(built.programs, tuple(_different([*found, *built.notes])))


def usage_text(whole: Whole) -> str:
    """Who needs the memory where it is fullest."""
    lines = []
    for each in whole.usage:
        lines.append(
            f"{each.name}: {each.bound} of {each.capacity} bytes per partition are live at once at {each.location}"
        )
        if each.tensors:
            lines.append(table(each.tensors))
    return "\n".join(lines)


def _different(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once: cores mostly have the same ones, and a race between cores is found before and after."""
    kept: list[Finding] = []
    keys: set[tuple[Any, ...]] = set()
    for finding in findings:
        key = (finding.code, finding.location, "" if finding.code in _TWICE else finding.message)
        if key not in keys:
            keys.add(key)
            kept.append(finding)
    return kept
