"""What every call tells of a kernel that runs and probably does not do what was meant, whatever the data is."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nki.passes.lint.lost_products import lost_products
from nki.passes.lint.self_overlap import self_overlaps
from nki.passes.lint.unwritten_results import partly_written
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.target.model import Target

CODES = ("return.partly-written", "psum.overwritten", "psum.unread", "access.overlap")


def mistakes(programs: Sequence[Program], target: Target, disabled_rules: Collection[str] = ()) -> list[Finding]:
    """Warnings about the cores of a kernel as it was traced, each once: equal ones of several cores are one.

    Codes: `CODES`.
    """
    if set(CODES) <= set(disabled_rules):
        return []
    found = partly_written(programs, target)
    for program in programs:
        found += lost_products(program, target)
        found += self_overlaps(program, target)
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        if finding.code not in disabled_rules:
            kept.setdefault((finding.code, finding.location, finding.message), finding)
    return list(kept.values())
