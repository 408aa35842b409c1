"""What a collective asks of the ranks of a launch, whoever carries it out: threads, processes or a network."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from nki.core.errors import DivergenceError
from nki.core.locks import lock
from nki.core.source import Location

T = TypeVar("T")

_RULE = "all ranks of a list make the same collective calls in the same order"
_FEW = 8
"""The most ranks that are told one by one."""
_MOST_STATES = 16
"""The most places that an error tells; of 64 ranks most wait at the same line."""
_FIX = "make the same call on every rank of the list: move it out of what depends on the rank"


def listed(ranks: Sequence[int]) -> str:
    """Ranks in their order; of more than eight, those that follow each other as ``0 to 63``."""
    if len(ranks) <= _FEW:
        return ", ".join(map(str, ranks))
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


@dataclass(frozen=True, slots=True)
class Meeting:
    """A collective call as one rank makes it. All of it can be pickled, so that it can be sent to another process.

    Attributes:
        members: the ranks that meet, in the order of their list.
        what: the call, which is the same on all of them: the name, shapes and names of dtypes, the operator, the core.
        value: what this rank brings: arrays of NumPy in lists and tuples, or None. Nobody changes them afterwards.
        location: the line of the call, for errors.
    """

    members: tuple[int, ...]
    what: tuple[Any, ...]
    value: Any
    location: Location

    def __str__(self) -> str:
        return f"{self.what[0]} among ranks {listed(self.members)}"


class Brought(list[Any]):
    """What the members of a meeting bring, in their order; ranks of one process get the same one.

    So what all of them make of it, such as a sum, is made once.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lock = lock()
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What the first rank that asked for `key` made; nobody changes it afterwards."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            made: T = self._made[key]
            return made


class Communicator(Protocol):
    """One rank of a launch, and its way to the others.

    There is one operation. What each collective makes of the values is written once, in `nki.collectives`, and the
    order of every reduction is that of the members: so all implementations give the same bits.
    """

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""

    @property
    def size(self) -> int:
        """How many ranks the launch has."""

    def meet(self, meeting: Meeting) -> list[Any]:
        """Wait until all members make the same call; returns the value of each, in the order of the members.

        This rank is one of the members. It makes one call at a time: of the cores of a rank one runs, and core c meets
        core c of the other ranks, because `what` names it.

        Raises:
            DivergenceError: `mismatch` if a member is at another call, `deadlock` if one cannot come: it has ended,
                failed, waits for others, or did not come in the time that the implementation gives it.
        """


@dataclass(frozen=True, slots=True)
class Alone:
    """The only rank of a plain call."""

    rank: int = 0
    size: int = 1

    def meet(self, meeting: Meeting) -> list[Any]:
        """Meet alone: the only value is that of this rank."""
        return [meeting.value]


ALONE = Alone()


def same_members(mine: Meeting, other: Meeting) -> bool:
    """Whether two ranks that wait would meet each other."""
    return mine.members == other.members


def check_same_call(rank: int, mine: Meeting, member: int, other: Meeting) -> None:
    """Raise unless two ranks that meet each other make the same call.

    Raises:
        DivergenceError: ``ranks.mismatch``, at this rank's line; the message names the other one's.
    """
    if mine.what != other.what:
        message = f"rank {rank} is at {mine} while rank {member} waits at {other}, {other.location}"
        raise DivergenceError(
            "ranks.mismatch",
            message + _difference(mine, other),
            location=mine.location,
            rule=_RULE,
            fix=_FIX,
        )


def check_brought(meeting: Meeting, brought: list[Any]) -> None:
    """Raise unless there is a value of each member: a sum without one of them would look like a result.

    Raises:
        DivergenceError: ``ranks.values``.
    """
    if not isinstance(brought, list) or len(brought) != len(meeting.members):
        count = len(brought) if isinstance(brought, list) else type(brought).__name__
        raise DivergenceError(
            "ranks.values",
            f"{meeting}: meet returned {count}, and there are {len(meeting.members)} ranks",
            location=meeting.location,
            rule="meet returns a list with the value of each member, in their order",
            fix="correct the method meet of the object that nki.ranks.use got",
        )


def _difference(mine: Meeting, other: Meeting) -> str:
    """What tells two calls of one name apart."""
    if mine.what[0] != other.what[0]:
        return ""
    pairs = [(here, there) for here, there in zip(mine.what[1:], other.what[1:], strict=False) if here != there]
    if len(mine.what) != len(other.what) or not pairs:
        pairs = [(mine.what[1:], other.what[1:])]
    here, there = (", ".join(map(_in_words, side)) for side in zip(*pairs, strict=True))
    return f"; it has {here}, the other one {there}"


def _in_words(part: Any) -> str:
    """A part of a call: a tensor as its dtype and shape, other values as they are."""
    match part:
        case ((*shape,), str(dtype)) if all(isinstance(size, int) for size in shape):
            return f"{dtype}{shape}"
        case str():
            return part
        case tuple():
            return f"({', '.join(map(_in_words, part))})"
    return repr(part)[:80]


def _together(state: str, members: list[int]) -> str:
    """Ranks that wait at the same call."""
    one = len(members) == 1
    return f"{'rank' if one else 'ranks'} {listed(members)} {'waits' if one else 'wait'} {state}"


def has_ended(last: Meeting | None) -> str:
    """The words for a rank that has ended; `last` is the collective that it took part in before, if there was one."""
    return "has ended without calling one" if last is None else f"has ended, after its {last.what[0]}, {last.location}"


def deadlock(rank: int, mine: Meeting, others: Mapping[int, Meeting | str]) -> DivergenceError:
    """The error ``ranks.deadlock`` of a rank that waits in vain.

    Args:
        rank: which one.
        mine: what it waits for.
        others: for each other member where it waits, or in words why it does not come, for example "has ended".
    """
    where: dict[str, list[int]] = {}
    for member, state in others.items():
        text = f"at {state}, {state.location}" if isinstance(state, Meeting) else ""
        where.setdefault(text or f"rank {member} {state}", []).append(member)
    states = [_together(state, members) if state.startswith("at ") else state for state, members in where.items()]
    if len(states) > _MOST_STATES:
        states[_MOST_STATES:] = [f"and so on for {len(states) - _MOST_STATES} others"]
    return DivergenceError(
        "ranks.deadlock",
        f"rank {rank} waits at {mine}, but {', '.join(states)}",
        location=mine.location,
        rule=_RULE,
        fix=_FIX,
    )
