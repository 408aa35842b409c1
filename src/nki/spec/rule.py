"""Rules: one sentence, one predicate, a stable code, a severity and the document it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from nki.core.errors import NkiError
from nki.core.source import Location
from nki.target.model import Target

Severity = Literal["error", "warning"]
E = TypeVar("E", bound=NkiError)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that an instruction must meet.

    Attributes:
        code: last part of the code; the full one is ``<instruction>.<code>``.
        sentence: what must hold; ``{t...}`` is filled with the target's numbers (``{t.pe.rows}``).
        holds: ``(arguments, target) -> bool``; reads operands by name.
        source: document, section or release note.
        fix: one thing to do.
        actual: ``(arguments, target) -> str`` with the numbers that broke it.
        severity: "error" refuses the kernel, "warning" tells.
        remedy: ``(arguments, target) -> str``: the fix for these operands, where `fix` can only say it in general.
    """

    code: str
    sentence: str
    holds: Callable[[Any, Target], bool]
    source: str
    fix: str
    actual: Callable[[Any, Target], str] | None = None
    severity: Severity = "error"
    remedy: Callable[[Any, Target], str] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule at a place."""

    code: str
    severity: Severity
    message: str
    rule: str
    source: str
    fix: str
    location: Location
    facts: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "rule": self.rule,
            "source": self.source,
            "fix": self.fix,
            "facts": {k: v if isinstance(v, int | float | bool) else str(v) for k, v in self.facts.items()},
            "location": self.location.to_json(),
        }


def finding_of(error: NkiError, severity: Severity, location: Location | None = None) -> Finding:
    """What an error says, as a finding of this severity; it is at `location`, else where the error is."""
    where = error.location if location is None else location
    return Finding(error.code, severity, error.message, error.rule, error.source, error.fix, where, dict(error.facts))


def error_of(finding: Finding, kind: type[E]) -> E:
    """A finding as an error of this class."""
    return kind(
        finding.code,
        finding.message,
        rule=finding.rule,
        source=finding.source,
        fix=finding.fix,
        facts=finding.facts,
        location=finding.location,
    )


def foretold(error: NkiError, location: Location | None = None) -> Finding:
    """A warning in eager mode, which goes on, of the error that a call of the same kernel ends with."""
    message = f"a call of this kernel is refused, because {error.rule}: {error.message}"
    return replace(finding_of(error, "warning", location), message=message)
