"""The compiler's passes in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from time import perf_counter
from typing import NamedTuple

from nki.core.errors import UsageError
from nki.passes import (
    accumulate_flags,
    allocate_and_schedule,
    canonicalize,
    check_races,
    copy_propagation,
    cse,
    dead_code,
    schedule,
    unroll,
)
from nki.passes.context import Context, Pass, PassResult
from nki.passes.names import current
from nki.spec.program import Program
from nki.spec.rule import Finding

PIPELINE: tuple[Pass, ...] = (
    canonicalize.PASS,
    dead_code.PASS,
    cse.PASS,
    copy_propagation.PASS,
    accumulate_flags.PASS,
    unroll.PASS,
    allocate_and_schedule.PASS,
    schedule.PASS,
    check_races.PASS,
)
"""What `compile_programs` runs, in this order."""


class Stage(NamedTuple):
    """The programs after a pass.

    Attributes:
        name: of the pass, "trace" for what came in.
        programs: one for each core.
        seconds: that the pass took, for all cores.
    """

    name: str
    programs: tuple[Program, ...]
    seconds: float


class Compilation(NamedTuple):
    """What passes made of the programs of all cores, and what they have to say, pass by pass."""

    programs: tuple[Program, ...]
    findings: tuple[Finding, ...]


def compile_programs(
    programs: Sequence[Program],
    context: Context,
    passes: Sequence[Pass] = PIPELINE,
    after: Callable[[Stage], None] | None = None,
) -> Compilation:
    """Run passes over the programs of all cores.

    Args:
        after: called with the programs that came in, and after every pass.
    """
    current = [PassResult(program) for program in programs]
    findings: list[Finding] = []
    if after is not None:
        after(Stage("trace", tuple(programs), 0.0))
    for item in passes:
        started = perf_counter()
        current = [_passed(item, before, context) for before in current]
        findings += [finding for result in current for finding in result.findings]
        if after is not None:
            after(Stage(item.name, tuple(result.program for result in current), perf_counter() - started))
    return Compilation(tuple(result.program for result in current), tuple(findings))


def _passed(item: Pass, before: PassResult, context: Context) -> PassResult:
    """The result of a pass, whose program knows that it went through it."""
    result = item.step(before, context)
    return replace(result, program=replace(result.program, passed=(*before.program.passed, item.name)))


def check_printed(name: str) -> str:
    """The name of today of a pass after which a variable wants IR printed, or "trace", "all" or "".

    Raises:
        UsageError: no pass has the name (``pass.unknown``).
    """
    if name and name not in ("trace", "all"):
        passes_named([name])
    return current(name)


def passes_named(names: Sequence[str]) -> tuple[Pass, ...]:
    """Passes by name, by one of today or before, in the given order. Raises UsageError "pass.unknown"."""
    known = {item.name: item for item in PIPELINE}
    found = [current(name) for name in names]
    for name, today in zip(names, found, strict=True):
        if today not in known:
            close = get_close_matches(today, known, n=1)
            raise UsageError(
                "pass.unknown",
                f"no pass is called {name!r}",
                rule=f"the passes are {', '.join(known)}",
                fix=f"write {close[0]}" if close else "write one of them",
            )
    return tuple(known[today] for today in found)


def remaining(programs: Sequence[Program]) -> tuple[Pass, ...]:
    """The passes that a program from a dump still needs, by what it carries; see `Program.passed`."""
    done = {current(name) for program in programs for name in program.passed}
    return tuple(item for item in PIPELINE if item.name not in done)
