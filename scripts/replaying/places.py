"""Locations without this package: what is left when lines and modules of it have moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nki.core.source import Frame, Location

ROOT = Path(__file__).resolve().parents[2]
USERS = tuple(f"{ROOT / folder}/" for folder in ("benchmarks", "examples", "tests"))
"""Folders whose code stands for the user's."""


def bare(location: Location) -> Location:
    """The user's frames, with files named from the root of the repository.

    Frames of the package, of the replay itself and of installed libraries are left out. Names that are no files of this
    machine, such as those in the text of a model, stay.
    """
    return Location(tuple(_frames(location)))


def _frames(location: Location) -> Iterator[Frame]:
    for frame in location.frames:
        if frame.file.startswith(USERS):
            yield replace(frame, file=frame.file.removeprefix(f"{ROOT}/"))
        elif not frame.file.startswith("/"):
            yield frame


def line(location: Location) -> str:
    """A location as text."""
    return " < ".join(
        f"{frame} {frame.end_line}:{frame.end_column} {frame.function}" for frame in bare(location).frames
    )
