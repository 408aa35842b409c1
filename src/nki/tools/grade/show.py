"""A grade for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from nki.profiling.evidence import evidence
from nki.tools.grade.grade import Grade
from nki.tools.grade.process.run import Heard
from nki.tools.grade.trials import Trial
from nki.tools.output import show_finding


def grade_json(made: Grade) -> dict[str, Any]:
    """Everything, in JSON types."""
    request, heard = made.request, made.heard[0]
    return {
        "candidate": _named(request.candidate),
        "baseline": None if request.baseline is None else _named(request.baseline),
        "reference": request.judgement.reference.shown,
        "target": request.target.name,
        "validated": request.target.validated,
        "cores": request.cores,
        "passed": made.passed,
        "score": made.score,
        "explain": explained("grade.score"),
        "findings": [finding.to_json() for finding in made.findings],
        "sets": [
            {"arguments": str(chosen), "derived": chosen.derived, "program": made.fingerprints.get(number)}
            for number, chosen in enumerate(made.sets)
        ],
        "values": [trial.to_json() for trial in made.trials],
        "time": None if made.times is None else made.times.to_json(),
        "advice": made.advice,
        "notes": made.notes,
        "seed": request.judgement.seed,
        "isolation": None if heard.isolation is None else heard.isolation.to_json(),
        "processes": [
            {"ended": each.ended, "seconds": each.seconds, "cpu_seconds": each.cpu, "resident_bytes": each.memory}
            for each in made.heard
        ],
    }


def show_grade(console: Console, made: Grade) -> None:
    """Findings, values, time, the score."""
    for finding in made.findings:
        show_finding(finding)
    if made.trials:
        console.print(_values(made.trials))
    grid = Table.grid(padding=(0, 2))
    for row in [*_time(made), *_around(made)]:
        grid.add_row(*row)
    console.print(grid)
    verdict = "passed" if made.passed else "failed"
    request = made.request
    console.print(f"{request.candidate.path.name} for {request.target.name}: {verdict}, score {made.score:.1f} of 100")
    console.print(f"{explained('grade.score')}; --seed {request.judgement.seed} repeats this")


def explained(code: str) -> str:
    """Where to read more."""
    return f"`nki explain {code}` tells more"


def _values(trials: Sequence[Trial]) -> Table:
    table = Table(title="values", title_justify="left")
    for heading in ("set", "inputs", "result", "verdict", "judged", "worst error", "allowed there"):
        table.add_column(heading)
    for trial in trials:
        question = trial.question
        start = (str(question.number), question.kind.name)
        if question.note or trial.error is not None:
            said = f"not asked: {question.note}" if trial.error is None else trial.error.code
            table.add_row(*start, "", said, "", "", "")
        for row in trial.rows:
            judged = f"{row.judged} of {row.elements}"
            table.add_row(*start, row.name, row.verdict, judged, f"{row.error:.3g}", f"{row.allowed:.3g}")
    return table


def _time(made: Grade) -> list[tuple[str, str]]:
    times = made.times
    if times is None:
        return []
    within, rows = (
        times.within,
        [("predicted time", f"{_us(times.predicted_ns)}, and a launch adds {_us(times.launch_ns)}")],
    )
    if within is not None:
        known = f"within {within.percent:.0f} % in {within.share:.0%} of {within.points} {within.kind}"
        rows.append(("", known))
    rows += [
        ("bound by", f"{times.bound_by}; no order of its instructions is faster than {_us(times.lower_bound_ns)}"),
        ("roofline", f"{_us(times.roofline_ns)} for this task: {times.share:.1%} of it reached"),
    ]
    if times.baseline_ns is not None and times.speedup is not None:
        rows.append(("baseline", f"{_us(times.baseline_ns)}: {times.speedup:.2f} times as fast"))
    return [*rows, ("evidence", evidence(made.request.target.name, made.request.target.validated))]


def _around(made: Grade) -> list[tuple[str, str]]:
    heard = made.heard[0]
    rows = [(f"set {number}", str(chosen)) for number, chosen in enumerate(made.sets) if number in made.fingerprints]
    rows += [("note", note) for note in made.notes]
    rows.append(("isolation", _isolation(heard)))
    rows.append(("traced in", f"{heard.seconds:.1f} s, {heard.cpu:.1f} s of CPU, {heard.memory / 2**20:.0f} MiB"))
    return rows


def _isolation(heard: Heard) -> str:
    found = heard.isolation
    if found is None:
        return "none: the process did not start"
    parts = [
        f"files by Landlock {found.landlock}" if found.landlock else "files by Python's audit events alone",
        "system calls filtered" if found.system_calls else "system calls not filtered",
        "a network of its own" if found.network_namespace else "no network of its own",
        "limits of time and memory",
    ]
    return ", ".join(parts)


def _named(files: Any) -> dict[str, str]:
    return {"file": str(files.path), "kernel": files.name, "sha256": files.digest}


def _us(ns: float) -> str:
    return f"{ns / 1000.0:,.2f} µs"
