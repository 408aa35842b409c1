"""A collective call as a rank makes it, in a form that ranks compare before anything is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nki.core.source import Frame, Location
from nki.ranks.protocol import Meeting

_TEXT, _EACH = 1024, 48
"""Bytes of a call's record: its text, and numbers for each rank."""


@dataclass(frozen=True, slots=True)
class Call:
    """What ranks must agree on.

    Attributes:
        what: the name of the call, and what is the same on all ranks: shapes, the dtype, the operator, the root.
        location: the user's line.
        sends: elements for each rank; empty if the call says it.
        expects: elements from each rank; empty if the call says it.
    """

    what: tuple[Any, ...]
    location: Location
    sends: Sequence[int] = ()
    expects: Sequence[int] = ()

    def meeting(self, members: Sequence[int]) -> Meeting:
        """As errors spell it."""
        return Meeting(tuple(members), self.what, None, self.location)

    def document(self) -> dict[str, Any]:
        """What it is and where, in a form that JSON has."""
        frame = self.location.frame
        place = (frame.file, frame.function, frame.line, frame.column) if frame is not None else None
        return {"what": _plain(self.what), "line": place}

    @staticmethod
    def of(document: Mapping[str, Any]) -> Call:
        """What `document` made, with the sizes if it has some."""
        place = document["line"]
        location = Location((Frame(*place),)) if place is not None else Location()
        return Call(_tuples(document["what"]), location, document.get("sends", ()), document.get("expects", ()))

    def packed(self, ranks: int) -> bytes:
        """A record of the same length on all ranks."""
        document = {**self.document(), "sends": [*self.sends], "expects": [*self.expects]}
        made = json.dumps(document, separators=(",", ":")).encode()
        size = record_size(ranks)
        if len(made) > size:  # long shapes: their text tells them apart as well
            what = [self.what[0], str(hash_of(document["what"]))]
            made = json.dumps({**document, "what": what, "line": None}, separators=(",", ":")).encode()
        return made.ljust(size)


def record_size(ranks: int) -> int:
    """Bytes of a packed call among so many ranks."""
    return _TEXT + _EACH * ranks


def unpacked(record: bytes) -> Call:
    """The call of another rank."""
    return Call.of(json.loads(record))


def hash_of(value: Any) -> str:
    """A short text that tells values of JSON apart."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
