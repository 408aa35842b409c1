"""Source lines as chains of calls: each line knows the call that led to it."""

from __future__ import annotations

import linecache

from nki.core.source import Frame, Location, is_own
from nki.profiling.table import Table, from_rows

_MOST = 400  # characters of a line that are kept


class Lines:
    """Numbers for locations; equal chains have equal numbers, a caller a smaller one than who it calls."""

    def __init__(self) -> None:
        self._known: dict[tuple[Frame, int], int] = {}
        self._of: dict[int, int] = {}
        self._kept: list[Location] = []

    def of(self, location: Location) -> int:
        """The id of the innermost line of a location, or -1."""
        found = self._of.get(id(location))
        if found is None:
            found = -1
            users = [frame for frame in location.frames if not is_own(frame)]
            for frame in reversed(users or location.frames):  # a line of this package led to nothing
                found = self._known.setdefault((frame, found), len(self._known))
            self._of[id(location)] = found
            self._kept.append(location)  # so that no other location gets the same id
        return found

    def table(self) -> Table:
        """The table ``sources``."""
        rows = []
        for number, (frame, parent) in enumerate(self._known):
            text = _plain(linecache.getline(frame.file, frame.line).strip()[:_MOST])
            rows.append((number, frame.file, frame.function, frame.line, frame.column, frame.end_column, parent, text))
        return from_rows("sources", rows)


def _plain(text: str) -> str:
    """Text without characters that a terminal would obey; a reader refuses them."""
    return "".join(each if each.isprintable() or each.isspace() else "\N{REPLACEMENT CHARACTER}" for each in text)
