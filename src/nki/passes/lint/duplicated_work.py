"""Kernels on two cores that both do all of the work: what each core runs is the same, on the same bytes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from nki.core.tensor import View
from nki.spec.program import Issued, Program
from nki.spec.rule import Finding

_MEETS = ("core_barrier", "sendrecv", "shared")


def undivided(programs: Sequence[Program]) -> list[Finding]:
    """A warning if all cores run the same instructions on the same elements, and never meet.

    The results are right, and no sooner there than from one core.

    Code: ``cores.undivided``.
    """
    if len(programs) < 2:
        return []
    first, *others = [_work(program) for program in programs]
    if not first or any(work != first for work in others):
        return []
    return [
        Finding(
            "cores.undivided",
            "warning",
            f"{programs[0].name} runs on {len(programs)} cores, and all of them run the same {len(first)} instructions "
            "on the same elements",
            "a kernel divides its work by nl.program_id(0), the number of the core that runs it",
            "nki/get-started/about/lnc.rst",
            "launch it on one core, or let each core take its share of the rows: "
            "rows = a.shape[0] // nl.num_programs(0), from nl.program_id(0) * rows on",
            programs[0].location,
            {"cores": len(programs), "instructions": len(first)},
        )
    ]


def _work(program: Program) -> list[Hashable]:
    """What a core does; nothing if it meets other cores, or has device loops, whose bounds may differ."""
    found: list[Hashable] = []
    for issued in program.body.items:
        if not isinstance(issued, Issued):
            return []
        if issued.instruction.name in _MEETS or "fence" in issued.instruction.effects(issued.arguments):
            return []
        found.append((issued.instruction.name, issued.location, tuple(_place(view) for _, view in issued.views())))
    return found


def _place(view: View) -> Hashable:
    return (view.buffer.name, view.shape, view.strides, view.offset, str(view.dynamic))
