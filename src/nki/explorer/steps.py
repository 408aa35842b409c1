"""A step of many ranks that is shown: a row for each rank, or for some that stand for all."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nki.explorer.payload import VERSION, aligned
from nki.profiling.ranks.coverage import Covered
from nki.profiling.ranks.meetings import coalesced, meetings_of, shown_of
from nki.profiling.ranks.ranges import shown_ranks
from nki.profiling.ranks.record import StepProfile
from nki.profiling.ranks.rows import TIMES, RankClass

MOST_RANKS = 64
"""Rows of a page."""

MOST_INTERVALS = 4000
"""Intervals of one kind in a row; the shortest pauses between others are left out."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step on a page.

    Attributes:
        profile: the data.
        label: the name of its folder.
    """

    profile: StepProfile
    label: str

    @property
    def name(self) -> str:
        """What it is about."""
        return self.profile.name

    @property
    def size(self) -> tuple[str, int]:
        """What there is most of, and how many."""
        return "ranks", self.profile.ranks

    @property
    def tables(self) -> Mapping[str, Any] | None:
        """None: there is nothing that SQL could ask."""
        return None

    def block(self) -> bytes:
        """What the front end reads."""
        header = {"version": VERSION, "label": self.label, "step": self._step(), "tables": {}}
        text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
        return zlib.compress(aligned(text), 6)

    def _step(self) -> dict[str, Any]:
        profile = self.profile
        ranks = shown_of(profile, MOST_RANKS)
        numbers = {rank: number for number, each in enumerate(profile.classes) for rank in each.ranks}
        return {
            "name": profile.name,
            "ranks": profile.ranks,
            "instance": profile.instance,
            "target": profile.target,
            "makespan_ns": profile.makespan_ns,
            **{name: getattr(profile, name) for name in TIMES},
            "notes": list(profile.notes),
            "rows": [{"rank": rank, "class": numbers[rank]} for rank in ranks],
            "classes": [_class(each) for each in profile.classes],
            "collectives": [asdict(each) for each in profile.collectives],
            "path": [list(piece) for piece in profile.path],
            "meetings": [
                [each.collective, each.start_ns, each.last, sorted(each.members.items())]
                for each in meetings_of(profile, ranks)
            ],
        }


def _class(found: RankClass) -> dict[str, Any]:
    rows = np.array([(each.start_ns, each.end_ns) for each in found.communications], float).reshape(-1, 2)
    exposed = Covered(rows).without(Covered(np.array(found.work, float).reshape(-1, 2)))
    return {
        "ranks": shown_ranks(found.ranks),
        "count": len(found.ranks),
        "program": found.program,
        "slowdown": found.slowdown,
        "end_ns": found.end_ns,
        **{name: getattr(found, name) for name in TIMES},
        "work": coalesced(found.work, MOST_INTERVALS),
        "exposed": coalesced(exposed, MOST_INTERVALS),
        "runs": [list(run) for run in found.runs],
        "communications": [list(each) for each in found.communications],
    }
