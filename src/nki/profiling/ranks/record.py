"""A profile of a step of many ranks as an object: what people and programs read of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nki.profiling.optional_formats import formats
from nki.profiling.ranks.ranges import shown_ranks
from nki.profiling.ranks.rows import TIMES, RankClass, StepTimes
from nki.profiling.ranks.summary import step_text


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepProfile(StepTimes):
    """A step of many ranks in time, by the timing model; see `StepTimes` for what is known of it."""

    def to_json(self) -> dict[str, Any]:
        """For programs: everything but the intervals of each class."""
        bound = self.bound_by
        return {
            "name": self.name,
            "ranks": self.ranks,
            "instance": self.instance,
            "target": self.target,
            "is_simulation": True,
            "makespan_ns": self.makespan_ns,
            **{name: getattr(self, name) for name in TIMES},
            "bound_by": None if bound is None else asdict(bound),
            "classes": [_class_json(each) for each in self.classes],
            "collectives": [asdict(each) for each in self.collectives],
            "critical_path": [piece._asdict() for piece in self.path],
            "notes": list(self.notes),
        }

    def summary(self) -> str:
        """For people."""
        return step_text(self)

    def save(self, folder: str | Path) -> None:
        """Write ``step.json``, with all intervals, to a folder. Raises UsageError "profile.write"."""
        formats().save_step(self, Path(folder))

    def perfetto(self, file: str | Path) -> None:
        """Write a trace for the Perfetto UI, with a process for each rank, and flows between them.

        Raises:
            UsageError: the package perfetto is missing (``profile.extra``), or "profile.write".
        """
        formats().perfetto_step(self, Path(file))

    @staticmethod
    def load(folder: str | Path) -> StepProfile:
        """Read what `save` wrote. Raises ArtifactError as `nki.profiling.record.Profile.load`."""
        found: StepProfile = formats().load_step(Path(folder))
        return found

    def __repr__(self) -> str:
        return f"<step of {self.ranks} ranks on {self.instance}: {self.makespan_ns / 1000:.2f} µs>"


def _class_json(found: RankClass) -> dict[str, Any]:
    return {
        "ranks": shown_ranks(found.ranks),
        "count": len(found.ranks),
        "program": found.program,
        "slowdown": found.slowdown,
        "end_ns": found.end_ns,
        **{name: getattr(found, name) for name in TIMES},
    }
