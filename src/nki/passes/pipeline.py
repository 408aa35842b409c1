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
    keep_loads,
    schedule,
    unroll,
    zero_fills,
)
from nki.passes.context import Context, Pass, PassResult
from nki.passes.names import current
from nki.spec.kept_load import KeptLoad, together
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.timing.core_time import CoreTime, core_time
from nki.timing.cores import spent_by_cores

PIPELINE: tuple[Pass, ...] = (
    canonicalize.PASS,
    dead_code.PASS,
    cse.PASS,
    keep_loads.PASS,
    copy_propagation.PASS,
    zero_fills.PASS,
    accumulate_flags.PASS,
    unroll.PASS,
    allocate_and_schedule.PASS,
    schedule.PASS,
    check_races.PASS,
)
"""What `compile_programs` runs, in this order."""

WHAT_RUNS = PIPELINE[: PIPELINE.index(allocate_and_schedule.PASS)]
"""Passes that decide which instructions run; the others decide where their tensors lie, and when each of them runs."""

PROOFS = (check_races.PASS,)
"""Passes that change nothing and refuse only what the compiler itself did wrong: a question about time needs none."""


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
    """What passes made of the programs of all cores.

    Attributes:
        findings: what the passes have to say, one after the other.
        kept: loads that were left out, because what they bring was there.
    """

    programs: tuple[Program, ...]
    findings: tuple[Finding, ...]
    kept: tuple[KeptLoad, ...]


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
    if after is not None:
        after(Stage("trace", tuple(programs), 0.0))
    results, findings, kept = _run(programs, context, passes, after)
    return Compilation(tuple(result.program for result in results), tuple(findings), together(kept))


def _run(
    programs: Sequence[Program], context: Context, passes: Sequence[Pass], after: Callable[[Stage], None] | None
) -> tuple[list[PassResult], list[Finding], list[KeptLoad]]:
    current = [PassResult(program) for program in programs]
    findings: list[Finding] = []
    kept: list[KeptLoad] = []
    for item in passes:
        started = perf_counter()
        current = [_passed(item, before, context) for before in current]
        findings += [finding for result in current for finding in result.findings]
        kept += [load for result in current for load in result.kept]
        if after is not None:
            after(Stage(item.name, tuple(result.program for result in current), perf_counter() - started))
    return current, findings, kept


def time_programs(
    programs: Sequence[Program], context: Context, after: Callable[[Stage], None] | None = None
) -> tuple[CoreTime, ...]:
    """What the programs of all cores would take, compiled: by the passes that they still need, but no `PROOFS`.

    Equal to the timelines of what `compile_programs` makes, and refused for the same reasons.

    Args:
        programs: traced, or after `WHAT_RUNS`.
        after: called after every pass.
    """
    needed = [item for item in remaining(programs) if item not in PROOFS]
    if after is None and not (len(programs) > 1 and any(map(_meets, programs))):
        results, _, _ = _run(programs, context, [item for item in needed if item is not schedule.PASS], None)
        return tuple(core_time(result.program, schedule.spent(result, context)) for result in results)
    made = [result.program for result in _run(programs, context, needed, after)[0]]
    return tuple(map(core_time, made, spent_by_cores(made, context.target)))


def _meets(program: Program) -> bool:
    """Whether an instruction waits for another core."""
    return any("rendezvous" in issued.instruction.effects(issued.arguments) for issued in program.body.walk())


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
    """The passes that a program from a dump still needs, by what it carries; see `Program.passed`.

    What is placed has its instructions: a pass that an older version did not have comes too late for it.
    """
    done = {current(name) for program in programs for name in program.passed}
    placed = allocate_and_schedule.PASS.name in done
    return tuple(item for item in PIPELINE if item.name not in done and not (placed and item in WHAT_RUNS))
