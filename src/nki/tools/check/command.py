"""``nki check``: trace and verify a kernel for a target, and say everything that is wrong at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import click

from nki.core.catalogue import close_codes
from nki.core.errors import NkiError, UsageError, VerificationError, render
from nki.core.source import Location
from nki.driver.launch import trace_only
from nki.frontend.check.language_check import FRONTENDS, check_function
from nki.frontend.results import returns_nothing, unwritten_outputs, writes_of
from nki.frontend.trace import Tracer
from nki.passes.lint.duplicated_work import undivided
from nki.passes.lint.mistakes import mistakes
from nki.spec.program import Program
from nki.spec.rule import Finding, finding_of
from nki.target.model import Target
from nki.tools.check.after_errors import further_errors
from nki.tools.check.whole_program import check_whole, compiled, usage_text
from nki.tools.codes import all_codes
from nki.tools.output import REFUSED, echo, placed, show_error, show_finding, stdout, working, write_json
from nki.tools.request import Request, kernel_command, read_request, usage_error
from nki.tools.usage import usage_of

NEWEST = "0.7"
"""The version whose front end is that of the kernel itself, which need not be NKI's."""


@kernel_command("check", short_help="Check a kernel for a target.")
@click.option("--allow", "allowed", multiple=True, metavar="CODE", help="Do not report this code; may be repeated.")
@click.option(
    "--frontend",
    type=click.Choice(sorted(FRONTENDS)),
    default=NEWEST,
    show_default=True,
    help="0.6: also report what the parser front end of NKI 0.3 to 0.6 refuses.",
)
@click.option("--all", "everything", is_flag=True, help="Look through the whole program as well.")
def command(
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    allowed: tuple[str, ...],
    frontend: str,
    everything: bool,
) -> None:
    """Trace a kernel, check every instruction for a target and compile it, without running it.

    What a call refuses is refused here. With --all the whole program is looked through as well: races, memory, ranges
    of values.

    Exit code 0: accepted, perhaps with warnings. 1: refused. 2: the command was used wrongly.
    """
    request = allow(read_request(kernel, args, target, lnc, seed, as_json), allowed)
    with working(f"checking {request.launch.name} for {request.target.name}"):
        findings, error, programs = _checked(request)
        config = request.launch.config
        accepted = _may_compile(findings, error)
        built = compiled(programs, request.target, request.options, config) if accepted else None
        whole = check_whole(programs, built, request.target) if everything and built is not None else None
    later = whole.findings if whole is not None else built.findings if built is not None else ()
    findings = [*check_language(request, frontend, findings, error), *findings, *later]
    findings += _memory(programs, request.target) if built is not None and built.programs else []
    findings = [finding for finding in findings if finding.code not in request.options.disabled_rules]
    refused = error is not None or any(finding.severity == "error" for finding in findings)
    if as_json:
        told = _json(request, findings, error, refused)
        write_json(told if not everything else {**told, "whole": whole.to_json() if whole else None})
    else:
        _show(request, findings, error, refused)
        if whole is not None:
            echo(usage_text(whole), err=not whole.compiled)
        elif everything:
            echo("not compiled, because a rule is broken", err=True)
    if refused:
        raise click.exceptions.Exit(REFUSED)


def allow(request: Request, codes: Sequence[str]) -> Request:
    """The request with rules switched off; an unknown code is an error, as it would switch nothing off."""
    for code in codes:
        if code not in all_codes():
            close = close_codes(code, all_codes())
            raise usage_error(
                "check.allow", f"--allow {code}", f"write {close[0]}" if close else "`nki explain` lists the codes"
            )
    disabled = request.options.disabled_rules | set(codes)
    return replace(request, options=replace(request.options, disabled_rules=disabled))


def check_language(request: Request, frontend: str, traced: Sequence[Finding], stop: NkiError | None) -> list[Finding]:
    """What reading the source finds, without what tracing found as well: that has the actual values."""
    known = {(finding.code, _line(finding.location)) for finding in traced}
    if stop is not None:
        known.add((stop.code, _line(stop.location)))
    launch = request.launch
    found = launch.front_end.check(launch.function) if frontend == NEWEST else check_function(launch.function, frontend)
    return [finding for finding in found if (finding.code, _line(finding.location)) not in known]


def _line(location: Location) -> tuple[str, int] | None:
    return (location.frame.file, location.frame.line) if location.frame is not None else None


def check_request(request: Request) -> tuple[list[Finding], NkiError | None]:
    """Everything that was found on all cores, and the error that ended the trace early, if one did.

    After such an error the statement is left out and the kernel is traced again, so that the error is the last one of
    several; of broken rules only the first one is known then.
    """
    return _checked(request)[:2]


def _checked(request: Request) -> tuple[list[Finding], NkiError | None, list[Program]]:
    try:
        tracers = _trace(request, collect=True)
    except UsageError:
        raise
    except NkiError as error:
        *others, last = [error, *_further(request, error)]
        before = [finding_of(placed(each), "error") for each in others]
        return [*_first_finding(request, error), *before], placed(last), []
    findings = [finding for tracer in tracers for finding in tracer.findings]
    programs = [tracer.program for tracer in tracers]
    writes = writes_of(programs)
    findings += unwritten_outputs(programs, writes) + returns_nothing(programs, writes, "error")
    findings += mistakes(programs, request.target) + undivided(programs)
    return findings, None, programs


def _further(request: Request, error: NkiError) -> list[NkiError]:
    """Errors of other statements than the one that ended the trace."""
    function = request.launch.function
    if not isinstance(function, FunctionType):
        return []
    return further_errors(error, function, lambda: _trace(request, collect=True))


def _may_compile(findings: Sequence[Finding], error: NkiError | None) -> bool:
    """Only what breaks no rule can be compiled."""
    return error is None and not any(finding.severity == "error" for finding in findings)


def _trace(request: Request, *, collect: bool) -> list[Tracer]:
    with request.user_code():
        return trace_only(request.launch, (), request.kwargs, request.target, request.options, collect=collect)


def _first_finding(request: Request, stop: NkiError) -> list[Finding]:
    """The first broken rule, unless it is what ended the trace: tracing again raises at the first one."""
    try:
        _trace(request, collect=False)
    except VerificationError as first:
        if (first.code, first.location) != (stop.code, stop.location):
            return [
                Finding(
                    first.code, "error", first.message, first.rule, first.source, first.fix, first.location, first.facts
                )
            ]
    except NkiError:
        return []
    return []


def _memory(programs: Sequence[Program], target: Target) -> list[Finding]:
    """Warnings where more is live at once, as the kernel is written, than there is, although it was compiled.

    Tensors that span few partitions lie beside each other then, or instructions were reordered.
    """
    peak = usage_of(programs)
    over = [
        ("SBUF", peak.sbuf, target.sbuf.bytes_per_partition),
        ("PSUM", peak.psum, target.psum.bytes_per_partition),
    ]
    return [
        Finding(
            "memory.peak",
            "warning",
            f"up to {used} bytes of each {name} partition are in use at the same time",
            f"one {name} partition of {target.name} holds {limit} bytes",
            "nki/guides/architecture/trainium_inferentia2_arch.rst",
            "use smaller tiles, or load a tile where it is used instead of before the loop",
            programs[0].location,
            {"bytes": used, "limit": limit},
        )
        for name, used, limit in over
        if used > limit
    ]


def _json(request: Request, findings: list[Finding], error: NkiError | None, refused: bool) -> dict[str, Any]:
    return {
        "kernel": request.launch.name,
        "target": request.target.name,
        "cores": request.launch.cores,
        "accepted": not refused,
        "complete": error is None,
        "findings": [*(finding.to_json() for finding in findings), *([error.to_json()] if error else [])],
    }


def _show(request: Request, findings: list[Finding], error: NkiError | None, refused: bool) -> None:
    counts = Counter((finding.code, finding.location.frame) for finding in findings)
    shown: set[Any] = set()
    for finding in findings:
        key = (finding.code, finding.location.frame)
        if key not in shown:
            show_finding(finding, more=counts[key] - 1)
            shown.add(key)
    if error is not None:
        show_error(render(error))
    errors = sum(finding.severity == "error" for finding in findings) + (error is not None)
    warned = sum(finding.severity == "warning" for finding in findings)
    verdict = "refused" if refused else "accepted"
    found = f"{_count(errors, 'error')}, {_count(warned, 'warning')}"
    stdout().print(f"{request.launch.name} for {request.target.name}: {verdict} ({found})")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
