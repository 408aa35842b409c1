"""The proof that the cores of a model use no byte in an order that no meeting makes."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.errors import ExecutionError
from nki.core.source import Location
from nki.passes.check_races import program_races
from nki.passes.proof.faults import Race
from nki.spec.program import Program
from nki.target.model import Target


def refuse_collisions(programs: Sequence[Program], own: Sequence[Location], target: Target) -> None:
    """Raise if two cores touch the same bytes, one of them writing, and no meeting lies between.

    Args:
        own: lines that call the user's kernels on two cores; what those do among themselves is theirs.

    Raises:
        ExecutionError: "cores.race"; that would be a fault of this package.
    """
    races = [race for race in program_races(programs, target) if not _is_of(race, own)]
    if races:
        first = races[0]
        raise ExecutionError(
            first.code,
            first.message,
            rule=first.finding("error").rule,
            fix=first.fix,
            facts={"bytes": first.bytes, "kind": first.kind, "faults": len(races)},
            location=first.location,
        )


def _is_of(race: Race, own: Sequence[Location]) -> bool:
    """Whether both instructions are of kernels that were called at one of these lines."""
    places = [set(issued.location.frames) for issued in (race.first, race.second) if issued is not None]
    return any(all(set(where.frames) <= place for place in places) for where in own)
