"""The faults of a candidate that only a judge finds: each with a code, what happened, the rule and a way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.source import UNKNOWN, Location
from nki.spec.rule import Finding
from nki.tools.grade.process.run import Heard

_ALONE = "a kernel is traced alone: it reads its own folder, and nothing of it reaches further"


def did(kind: str, text: str) -> Finding:
    """The candidate did something beside being traced; `kind` is one of `nki.tools.grade.process.watch.KINDS`."""
    match kind:
        case "reads":
            return fault("grade.reads", f"the candidate opened {text}", _ALONE, "name what it imports with --file")
        case "writes":
            return fault("grade.writes", f"the candidate changed {text}", _ALONE, "write no files in a kernel")
        case "network":
            return fault("grade.network", f"the candidate used the network: {text}", _ALONE, "import what it needs")
        case "process":
            message = f"the candidate asked for another process: {text}"
            return fault("grade.process", message, _ALONE, "start and end no processes in a kernel")
        case "sleep":
            rule = "times come from the timing model; no clock of a process counts"
            return fault("grade.sleep", f"the candidate slept {text}", rule, "take the sleep out")
    message = f"the candidate looked through the objects of its process: {text}"
    return fault("grade.memory-search", message, _ALONE, "use the arguments of the kernel alone")


def replaced(names: Sequence[str]) -> Finding:
    """The candidate put something in the place of functions of others."""
    return fault(
        "grade.replaced",
        f"the candidate replaced {', '.join(names[:5])}{' and more' if len(names) > 5 else ''} in its process",
        "a candidate uses this package and Python as they are; the judge runs in another process, where they are so",
        "leave modules as they are",
        {"names": ", ".join(names)},
    )


def wrong_answer(what: str) -> Finding:
    """The process wrote what no process of ours writes."""
    return fault(
        "grade.answer",
        f"the process of the candidate did not answer as the tracer does: {what}"[:500],
        "a candidate leaves the pipe to the judge alone",
        "use no file descriptor that the kernel did not open",
    )


def ended(heard: Heard) -> Finding:
    """The process ended, or was ended, before the last answer."""
    said = f"; it printed {heard.said.strip()[-300:]!r}" if heard.said.strip() else ""
    match heard.ended:
        case "time":
            message = (
                f"the candidate was not traced after {heard.seconds:.1f} s of wall time, {heard.cpu:.1f} s of CPU time"
            )
            return fault(
                "grade.time", message, "tracing ends within --seconds", "make loops shorter, or raise --seconds"
            )
        case "files" | "answer":
            what = "wrote more files than it may" if heard.ended == "files" else "traced a larger program than it may"
            return fault("grade.size", f"the candidate {what}", "folder and program have limits", "write less")
        case "garbage":
            return wrong_answer("it wrote something else than messages")
    return fault(
        "grade.ended",
        f"the process of the candidate ended ({heard.ended}) before it gave its last program{said}",
        "a kernel returns to who traces it",
        "end no process in a kernel, and need less memory than --memory",
    )


def fault(
    code: str,
    message: str,
    rule: str,
    fix: str,
    facts: dict[str, Any] | None = None,
    location: Location = UNKNOWN,
) -> Finding:
    """An error that only a judge finds."""
    return Finding(code, "error", message, rule, "", fix, location, facts or {})
