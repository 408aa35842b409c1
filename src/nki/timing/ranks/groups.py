"""The groups of all ranks from those of one: groups repeat, and fill the ranks from the first free one on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from nki.core.errors import LaunchError
from nki.core.source import Location

Lists = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1024)  # as many as there are kinds of groups in programs
def group_of_each(lists: Lists, ranks: int, whole: bool) -> tuple[tuple[int, ...], ...]:
    """For each rank the group that it is in; () if it is in none.

    A mesh of ranks has groups of one pattern along each of its dimensions. So the groups that are not named are the
    first one, moved to the lowest rank that has none yet.

    Args:
        lists: the groups that a program names.
        ranks: of the launch.
        whole: whether there are no others.
    """
    found: list[tuple[int, ...]] = [()] * ranks
    for group in lists:
        if max(group) < ranks:
            for rank in group:
                found[rank] = group
    if whole:
        return tuple(found)
    first = min(lists[0])
    for rank in range(ranks):
        if not found[rank]:
            moved = tuple(rank + member - first for member in lists[0])
            if max(moved) < ranks and not any(found[member] for member in moved):
                for member in moved:
                    found[member] = moved
    return tuple(found)


def groups_among(
    lists: Lists, ranks: int, whole: bool, taking_part: Sequence[int], name: str, location: Location
) -> tuple[tuple[int, ...], ...]:
    """`group_of_each`, if all ranks that have the program are in a group.

    Raises:
        LaunchError: ``step.groups``.
    """
    found = group_of_each(lists, ranks, whole)
    missing = next((rank for rank in taking_part if not found[rank]), None)
    if missing is not None and not whole:
        shown = [list(group) for group in lists[:4]]
        raise LaunchError(
            "step.groups",
            f"{name} among {shown}: with {ranks} ranks, rank {missing} is in no such group",
            rule="groups of one pattern fill all ranks that have the program",
            fix="take a number of ranks that the groups fill, or compile the ranks that differ as well",
            location=location,
        )
    return found
