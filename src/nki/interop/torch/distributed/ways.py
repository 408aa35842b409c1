"""Ways that calls take: with all ranks of a group, or from one to another one; calls on one way keep their order."""

from __future__ import annotations

from typing import NamedTuple


class Way(NamedTuple):
    """One way in a group.

    Attributes:
        source: the place in the group of who sends; None for receives from anybody.
        target: the place of who receives; None if all ranks take part.
        tag: of messages; of ways of all ranks, the number.
    """

    source: int | None = None
    target: int | None = None
    tag: int = 0

    def named(self, group: str) -> str:
        """The name of the way, which is the same on all ranks."""
        if self.target is None:
            return f"{group}|{self.tag}"
        return f"{group}|{'*' if self.source is None else self.source}>{self.target}|{self.tag}"

    def inside(self, outer: Way) -> Way:
        """The way of all ranks, of its own, for calls that callbacks of those on another one make."""
        return Way(tag=2 * (outer.tag + 1) + self.tag)


COLLECTIVES, COALESCED = Way(tag=0), Way(tag=1)


def from_anybody(name: str) -> str:
    """The name of the way on which messages of a pair may be received as well; empty for ways of all ranks."""
    rest, _, tag = name.rpartition("|")
    group, _, pair = rest.rpartition("|")
    _, found, target = pair.partition(">")
    return f"{group}|*>{target}|{tag}" if found else ""


def group_of_way(name: str) -> str:
    """The group that a way belongs to."""
    return name.partition("|")[0]
