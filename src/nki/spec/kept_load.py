"""What a report says of a load that was left out, because what it would bring was there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nki.core.source import Location


class KeptLoad(NamedTuple):
    """Loads of one line that were left out.

    Attributes:
        source: name of the tensor of device memory.
        location: of the loads.
        earlier: of those that brought what is read in their place.
        loads: how many there were; one in a device loop counts once.
        nbytes: that they would have read, all together.
    """

    source: str
    location: Location
    earlier: Location
    loads: int
    nbytes: int

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "source": self.source,
            "location": str(self.location),
            "earlier": str(self.earlier),
            "loads": self.loads,
            "bytes": self.nbytes,
        }

    def __str__(self) -> str:
        number = "1 load" if self.loads == 1 else f"{self.loads:,} loads"
        return f"{number} of {self.source} ({self.location}) left out, {self.nbytes:,} bytes: kept from {self.earlier}"


def together(loads: Iterable[KeptLoad]) -> tuple[KeptLoad, ...]:
    """One record for all loads of one line and one source, in the order of the first ones."""
    found: dict[tuple[Any, ...], KeptLoad] = {}
    for load in loads:
        key = (load.source, load.location.frame, load.earlier.frame)
        known = found.get(key)
        found[key] = (
            load if known is None else known._replace(loads=known.loads + load.loads, nbytes=known.nbytes + load.nbytes)
        )
    return tuple(found.values())


def said(loads: Sequence[KeptLoad]) -> str:
    """All of them in a few words."""
    count, nbytes = sum(load.loads for load in loads), sum(load.nbytes for load in loads)
    return f"{count:,} load{'s' if count > 1 else ''} left out, {nbytes:,} bytes that were in SBUF"
