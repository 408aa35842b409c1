"""``nki check --all``: the whole program, compiled as it would be, and everything that is certainly wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nki.compiler import CompileConfig
from nki.core.errors import NkiError, UsageError
from nki.driver import paused_collector
from nki.gate import compile_kernel
from nki.passes.checks import memory_findings
from nki.passes.races import program_races, refuse_races
from nki.passes.usage import MemoryUsage, table, usage
from nki.passes.value_range import value_findings
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.tools.request import Request

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


def check_whole(request: Request, programs: Sequence[Program]) -> Whole:
    """Compile traced programs, and look for what is wrong with them before and after.

    Races between cores, reads of memory that nobody wrote, sums that start wrong, stores that nobody reads, numbers
    that are out of range; then what the passes refuse or warn of (capacity, registers, aliasing), and what is wrong
    with the schedule that they made (races, deadlocks, cores that do not meet).
    """
    target, options = request.target, request.options
    races = program_races(programs, target)
    found = [race.finding("warning" if race.code == "cores.race" else "error") for race in races]
    found += memory_findings(programs, target)
    found += [finding for program in programs for finding in value_findings(program, target)]
    compiled: Sequence[Program] = ()
    try:
        with paused_collector():
            built = compile_kernel(programs, target, options, request.launch.compile_config or CompileConfig())
        compiled = built.programs
        found += built.notes
        refuse_races(compiled, target)
    except UsageError:
        raise
    except NkiError as error:
        found += error.found or [_of_error(error)]
    shown = usage((compiled or programs)[0], target)
    return Whole(tuple(_different(found)), shown, bool(compiled))


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


def _of_error(error: NkiError) -> Finding:
    return Finding(
        error.code, "error", error.message, error.rule, error.source, error.fix, error.location, dict(error.facts)
    )


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
