"""A profile that is shown, and what the page calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN
from nki.explorer.payload import payload
from nki.explorer.steps import ShownStep
from nki.profiling.optional_formats import STEP
from nki.profiling.ranks.record import StepProfile
from nki.profiling.record import Profile
from nki.profiling.table import Table

MOST_ROWS = 10_000_000
"""Rows of all tables of the profiles of a page: beyond, a browser has no memory for them."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One of the profiles of a page.

    Attributes:
        profile: the data.
        label: the name of its folder, or of the kernel.
    """

    profile: Profile
    label: str

    @property
    def name(self) -> str:
        """What it is about."""
        return self.profile.about.kernel

    @property
    def size(self) -> tuple[str, int]:
        """What there is most of, and how many."""
        return "instructions", len(self.profile["instructions"])

    @property
    def tables(self) -> Mapping[str, Table]:
        """What SQL asks."""
        return self.profile.tables

    def block(self) -> bytes:
        """What the front end reads."""
        return payload(self.profile.about.to_json(), self.profile.tables, self.label)


Page = Sequence[Shown | ShownStep]
"""What one window shows: one or two profiles, or a step."""


def page_of(folders: Sequence[Path]) -> Page:
    """What folders have: a step of many ranks, which is shown alone, or profiles.

    Raises:
        ArtifactError: as `from_folders` and `StepProfile.load`.
    """
    if len(folders) == 1 and (folders[0] / STEP).exists():
        return [ShownStep(StepProfile.load(folders[0]), folders[0].resolve().name)]
    return list(from_folders(folders))


def from_folders(folders: Sequence[Path]) -> list[Shown]:
    """Profiles of folders.

    Raises:
        ArtifactError: a folder is no profile, see `Profile.load`; or there is more than a page can show.
    """
    shown = [Shown(Profile.load(folder), folder.resolve().name) for folder in folders]
    rows = sum(len(table) for each in shown for table in each.profile.tables.values())
    if rows > MOST_ROWS:
        raise ArtifactError(
            "explorer.size",
            f"the tables have {rows:,} rows; a page shows {MOST_ROWS:,} at most",
            rule="the browser holds all of a profile in memory",
            fix="profile a smaller part of the program, or use the tables of nki profile --format parquet",
            facts={"rows": rows, "limit": MOST_ROWS},
            location=UNKNOWN,
        )
    return shown


def title(shown: Page) -> str:
    """Title of the window: the names of the kernels, in characters that a page can have."""
    names = list(dict.fromkeys(each.name for each in shown))
    return f"{' and '.join(names)} – profile".encode("utf-8", "replace").decode()
