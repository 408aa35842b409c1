"""A profile as an object: what it is about, its tables, and the forms in which it can be shown and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nki.profiling.about import About
from nki.profiling.breakdown import Breakdown, breakdown
from nki.profiling.optional_formats import formats
from nki.profiling.summary import breakdown_text, summary_html, summary_text
from nki.profiling.table import Table

__all__ = ["About", "Profile"]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A kernel in time on a target, by the timing model.

    Attributes:
        about: names, totals and advice.
        tables: by name, as docs/profile.md lists them.
    """

    about: About
    tables: Mapping[str, Table]

    @property
    def makespan_ns(self) -> float:
        """ns from the start of the kernel to its end on the device, of the slowest core."""
        return self.about.makespan_ns

    @property
    def advice(self) -> list[dict[str, Any]]:
        """The ranked bottlenecks."""
        return self.about.advice

    def __getitem__(self, table: str) -> Table:
        """A table by name."""
        return self.tables[table]

    def summary(self) -> str:
        """For people: where the time went, bounds, the critical path, advice."""
        return summary_text(self.about, self.tables)

    def breakdown(self, by: str = "module", core: int | None = None) -> Breakdown:
        """The time of a model, divided; `breakdown_text` of `nki.profiling.summary` writes it as a table.

        Args:
            by: "module", "class", "operation" or "kernel".
            core: whose time; None for the slowest one.

        Raises:
            UsageError: "profile.by" for another `by`, or a profile of a kernel.
        """
        return breakdown(self.about, self.tables, by, core)

    def by(self, what: str = "module", core: int | None = None) -> str:
        """`breakdown` as a table for people. Raises UsageError "profile.by"."""
        return breakdown_text(self.breakdown(what, core))

    def to_json(self) -> dict[str, Any]:
        """The summary for programs: ``profile.json``, where the time went, and what the critical path was spent on.

        Of a model also its time by module, ``modules``.
        """
        time: list[dict[str, dict[str, float]]] = [{} for _ in range(self.about.cores)]
        for row in self.tables["time"].rows():
            time[row["core"]].setdefault(row["track"], {})[row["category"]] = row["ns"]
        path: list[dict[str, float]] = [{} for _ in range(self.about.cores)]
        for row in self.tables["path"].rows():
            here = path[row["core"]]
            here[row["kind"]] = here.get(row["kind"], 0.0) + row["end_ns"] - row["start_ns"]
        found = {**self.about.to_json(), "time": time, "critical_path": path}
        return {**found, "modules": self.breakdown().to_json()["rows"]} if len(self.tables["kernels"]) else found

    def save(self, folder: str | Path) -> None:
        """Write the folder that docs/profile.md describes; files of an earlier profile in it are replaced.

        Raises:
            UsageError: pyarrow is missing (``profile.extra``), or the folder cannot be written (``profile.write``).
        """
        formats().save(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> Profile:
        """Read a folder; nothing outside it is read, and nothing in it is trusted.

        Raises:
            UsageError: pyarrow is missing (``profile.extra``).
            ArtifactError: it is no profile of this version (``profile.folder``, ``profile.version``, ``profile.size``,
                ``profile.table``, ``profile.values``).
        """
        loaded: Profile = formats().load(Path(folder))
        return loaded

    def explorer(self, folder: str | Path) -> None:
        """Write Parquet tables with the names and columns of the Neuron Explorer."""
        formats().explorer(self, Path(folder))

    def perfetto(self, file: str | Path, *others: Profile) -> None:
        """Write a trace for the Perfetto UI; `others` have processes of their own in it."""
        formats().perfetto((self, *others), Path(file))

    def csv(self, folder: str | Path) -> None:
        """Write every table as a CSV file with a header."""
        formats().csv(self, Path(folder))

    def _repr_html_(self) -> str:
        return summary_html(self.about)

    def __repr__(self) -> str:
        return f"<profile of {self.about.kernel} on {self.about.target}: {self.makespan_ns / 1000:.2f} µs>"
