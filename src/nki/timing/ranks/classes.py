"""Ranks that cannot be told apart: of one program, one speed, and partners that cannot be told apart either.

It is the coarsest partition that is stable, found by refinement as for graphs. A rank's times depend on its program,
its speed and the times of those that it meets, and these on nothing else; so the ranks of a class have equal times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nki.core.errors import LaunchError
from nki.timing.ranks.sites import Channel, Place, Site
from nki.timing.ranks.step import Step

Participant = tuple[int, Place]
"""A class, and the place of its call."""


class Meeting(NamedTuple):
    """Calls that wait for each other; of all groups that cannot be told apart it is one.

    Attributes:
        number: among all meetings.
        participants: classes and their calls.
        ns: from when all are there until the data has come.
    """

    number: int
    participants: tuple[Participant, ...]
    ns: float


class Classes(NamedTuple):
    """The classes of a step, by their lowest rank.

    Attributes:
        of: the class of each rank.
        members: the ranks of each class.
        meetings: by participant.
    """

    of: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    meetings: Mapping[Participant, Meeting]


def classes_of(step: Step, sites: Sequence[Sequence[Site]], apart: bool = False) -> Classes:
    """The classes of the ranks of a step.

    Args:
        sites: of each program.
        apart: whether each rank is a class of its own.

    Raises:
        LaunchError: ranks do not fit together (``step.mismatch``), or one is named that does not exist
            (``step.groups``).
    """
    patterns = [_patterns(each) for each in sites]
    channels = [_channels(rank, patterns[step.of[rank]], step.ranks) for rank in range(step.ranks)]
    first = [
        (step.of[rank], step.slowdown.get(rank, 1.0), tuple(channels[rank].values())) for rank in range(step.ranks)
    ]
    colours = list(range(step.ranks)) if apart else _refined(first, channels)
    members: list[list[int]] = [[] for _ in range(max(colours) + 1)]
    for rank, colour in enumerate(colours):
        members[colour].append(rank)
    found = _Meetings(step, patterns, channels, colours).of(members)
    return Classes(tuple(colours), tuple(map(tuple, members)), found)


Pattern = list[Site]
"""The calls of a program that meet the same ranks, whichever rank has the program."""

Channels = dict[Channel, tuple[int, ...]]
"""For each list of ranks that a rank meets, the patterns of its program that do, by number."""


def _patterns(sites: Sequence[Site]) -> list[Pattern]:
    found: dict[Any, Pattern] = {}
    for site in sites:
        found.setdefault((site.pair, site.place[1], id(site.groups)), []).append(site)
    return list(found.values())


def _channels(rank: int, patterns: Sequence[Pattern], ranks: int) -> Channels:
    found: Channels = {}
    for number, (site, *_) in enumerate(patterns):
        channel = site.channel(rank)
        if channel is None:
            continue
        if not 0 <= min(channel[1]) <= max(channel[1]) < ranks:
            raise _beyond(rank, site, channel, ranks)
        found[channel] = (*found.get(channel, ()), number)
    return found


def _beyond(rank: int, site: Site, channel: Channel, ranks: int) -> LaunchError:
    wrong = next(each for each in channel[1] if not 0 <= each < ranks)
    return LaunchError(
        "step.groups",
        f"{site.name} of rank {rank} meets rank {wrong}, and the step has {ranks} ranks",
        rule="ranks count from 0",
        fix="take as many ranks as the program was written for, or compile the ranks that differ as well",
        location=site.location,
    )


def _refined(colours: Sequence[Any], channels: Sequence[Channels]) -> list[int]:
    """Colours from 0 on, in the order of the ranks, that no look at a rank's partners divides further."""
    now = _numbered(colours)
    while True:
        seen: dict[Channel, int] = {}
        kinds: dict[frozenset[Any], int] = {}
        for channel in {channel for each in channels for channel in each}:
            kind = frozenset((now[rank], channels[rank].get(channel, ())) for rank in channel[1])
            seen[channel] = kinds.setdefault(kind, len(kinds))
        after = _numbered([(now[rank], *(seen[channel] for channel in each)) for rank, each in enumerate(channels)])
        if max(after) == max(now):
            return after
        now = after


def _numbered(values: Sequence[Any]) -> list[int]:
    known: dict[Any, int] = {}
    return [known.setdefault(value, len(known)) for value in values]


class _Meetings:
    """Which calls meet, found for one rank of each class."""

    def __init__(
        self,
        step: Step,
        patterns: Sequence[Sequence[Pattern]],
        channels: Sequence[Channels],
        colours: Sequence[int],
    ) -> None:
        self._step, self._patterns, self._channels, self._colours = step, patterns, channels, colours
        self._numbers: dict[frozenset[Participant], Meeting] = {}
        self._known: dict[tuple[int, tuple[int, ...]], list[Site]] = {}

    def of(self, members: Sequence[Sequence[int]]) -> dict[Participant, Meeting]:
        """The meetings of all classes, by participant."""
        found: dict[Participant, Meeting] = {}
        for rank, *_ in members:
            for channel in self._channels[rank]:
                partners = self._partners(channel)
                for ordinal, site in enumerate(self._calls(rank, channel)):
                    found[self._colours[rank], site.place] = self._meeting(rank, channel, ordinal, partners)
        return found

    def _calls(self, rank: int, channel: Channel) -> list[Site]:
        """The calls of a rank on a channel, in the order of its program."""
        number, which = self._step.of[rank], self._channels[rank].get(channel, ())
        found = self._known.get((number, which))
        if found is None:
            calls = (site for each in which for site in self._patterns[number][each])
            found = self._known[number, which] = sorted(calls, key=_place)
        return found

    def _partners(self, channel: Channel) -> list[int]:
        """One rank of the list for each way of meeting it: of each class, and each of its lists."""
        ways: dict[tuple[int, tuple[int, ...]], int] = {}
        for rank in channel[1]:
            ways.setdefault((self._colours[rank], self._channels[rank].get(channel, ())), rank)
        return list(ways.values())

    def _meeting(self, rank: int, channel: Channel, ordinal: int, partners: Sequence[int]) -> Meeting:
        site = self._calls(rank, channel)[ordinal]
        participants, ns = set(), site.ns
        for partner in partners:
            calls = self._calls(partner, channel)
            other = calls[ordinal] if ordinal < len(calls) else None
            if other is None or (other.operation, other.nbytes) != (site.operation, site.nbytes):
                raise _mismatch(rank, site, partner, other)
            participants.add((self._colours[partner], other.place))
            ns = max(ns, other.ns)
        key = frozenset(participants)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = Meeting(len(self._numbers), tuple(sorted(key)), ns)
        return found


def _place(site: Site) -> Place:
    return site.place


def _mismatch(rank: int, site: Site, partner: int, other: Site | None) -> LaunchError:
    does = "never does" if other is None else f"calls {other.name} of {other.nbytes:,} bytes at {other.location}"
    return LaunchError(
        "step.mismatch",
        f"rank {rank} calls {site.name} of {site.nbytes:,} bytes, and rank {partner}, which it meets there, {does}",
        rule="the ranks of a group call the same collectives, in the same order",
        fix="compile the ranks whose programs differ as well, or correct their groups",
        location=site.location,
    )
