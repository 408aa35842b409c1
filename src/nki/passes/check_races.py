"""The last pass refuses a program whose queues may do things in the wrong order; and the races that a kernel has."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.errors import ExecutionError
from nki.passes.context import Context, rewriting
from nki.passes.proof.core_races import between_cores
from nki.passes.proof.faults import CODES, Race
from nki.passes.proof.happens_before import check
from nki.spec.program import Program
from nki.target.model import Target


def program_races(programs: Sequence[Program], target: Target) -> list[Race]:
    """Conflicts between the cores of a traced kernel that no rendezvous orders: faults of the kernel itself.

    Accesses to shared_hbm tensors and to arguments, in instructions that no `nisa.core_barrier`, `nisa.barrier` or
    `nisa.sendrecv` separates. One core alone has none. ``race.finding("warning")`` is what to report.
    """
    return between_cores(programs, target)


def refuse_races(programs: Sequence[Program], target: Target) -> None:
    """Raise if the synchronised programs of a launch may do things in the wrong order.

    Conflicts between cores are none of the schedule's: kernels run the same code on both cores on purpose, and write
    the same bytes twice. See `program_races`.

    Raises:
        ExecutionError: "schedule.race", "schedule.deadlock", "schedule.signal", "schedule.queue" or "schedule.meeting";
            `found` has a finding for every fault.
    """
    races = [race for race in check(programs, target) if race.code != CODES["cores"]]
    if not races:
        return
    first = races[0]
    more = f" (and {len(races) - 1} more)" if len(races) > 1 else ""
    error = ExecutionError(
        first.code,
        first.message + more,
        rule=first.finding("error").rule,
        fix=first.fix,
        facts={"bytes": first.bytes, "kind": first.kind, "faults": len(races)},
        location=first.location,
    )
    error.found = tuple(race.finding("error") for race in races)
    raise error


def _run(program: Program, context: Context) -> Program:
    refuse_races([program], context.target)
    return program


PASS = rewriting(
    "check_races", "Prove that the queues and signals of a program order everything that must be ordered.", _run
)
