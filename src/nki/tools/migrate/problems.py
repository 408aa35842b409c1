"""What cannot be rewritten, and why."""

from __future__ import annotations

from dataclasses import dataclass

MARK = "# nki migrate: "
NOT_REACHED = "the example arguments do not lead here"
"""The reason for statements that were not executed."""

RUN_TIME = "a number of run time: names hand it on, which today's loops do not; the whole file stays in the first NKI"
"""The reason for files that loop over such numbers."""


class Unmigrated(Exception):
    """A statement that stays as it was. The text is the reason."""


class NoBox(Unmigrated):
    """An access that is no box, which slices could name."""


@dataclass(frozen=True, slots=True)
class Left:
    """A statement that was left as it was.

    Attributes:
        line: its line in the original file.
        reason: why.
    """

    line: int
    reason: str
