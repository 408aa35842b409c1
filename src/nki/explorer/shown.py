"""A profile that is shown, and what the page calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN
from nki.explorer.payload import payload
from nki.profiling.record import Profile

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

    def block(self) -> bytes:
        """What the front end reads."""
        return payload(self.profile.about.to_json(), self.profile.tables, self.label)


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


def title(shown: Sequence[Shown]) -> str:
    """Title of the window: the names of the kernels, in characters that a page can have."""
    names = list(dict.fromkeys(each.profile.about.kernel for each in shown))
    return f"{' and '.join(names)} – profile".encode("utf-8", "replace").decode()
