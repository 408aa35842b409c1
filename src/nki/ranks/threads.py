"""Ranks in one process, a thread for each: what is the same however they take turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nki.ranks.current import use
from nki.ranks.protocol import Brought, Meeting, deadlock, has_ended

T = TypeVar("T")


class ThreadRanks(ABC):
    """The meeting point of the ranks of a launch.

    Attributes:
        count: how many ranks there are.
        waiting: by rank, where it waits for others.
        last: by rank, the last collective that it came to.
        ended: by rank, whether its task is over.
        errors: by rank, what ended it, or is going to.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting: list[Meeting | None] = [None] * count
        self.last: list[Meeting | None] = [None] * count
        self.ended = [False] * count
        self.errors: list[BaseException | None] = [None] * count

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run one task for each rank; the error of the first one that failed by itself is raised.

        Kernels that a task calls are the rank of its thread.
        """
        results: list[Any] = [None] * self.count
        self.start(lambda rank: self._task(rank, tasks[rank], results))
        for rank, error in enumerate(self.errors):
            if error is not None and not isinstance(error, Aborted):
                error.add_note(f"on rank {rank} of {self.count}")
                raise error
        return results

    @abstractmethod
    def start(self, run: Callable[[int], None]) -> None:
        """Have a thread for each rank run; returns when all have ended."""

    @abstractmethod
    def begin(self, rank: int) -> None:
        """Return when a rank may begin."""

    @abstractmethod
    def meet(self, rank: int, meeting: Meeting) -> Brought:
        """Wait until all members are here; returns what they bring, in the order of the list."""

    @abstractmethod
    def end(self, rank: int) -> None:
        """Tell the others that a rank has ended, with its error or without."""

    def give_up(self, stuck: Sequence[int]) -> None:
        """Give ranks that wait in vain their errors: a deadlock, unless somebody else's error is the reason."""
        failed = any(error is not None for error in self.errors)
        for rank in stuck:
            if self.errors[rank] is not None:  # since an earlier time; it has not gone on yet
                continue
            meeting = self.waiting[rank]
            assert meeting is not None, "who does not wait can run"
            self.errors[rank] = Aborted() if failed else deadlock(rank, meeting, self._waited_for(rank, meeting))
            failed = True

    def _waited_for(self, rank: int, meeting: Meeting) -> dict[int, Meeting | str]:
        """Where the ranks are that a rank waits for, then those that these wait for, and so on: the whole circle."""
        found: dict[int, Meeting | str] = {}
        queue = [*meeting.members]
        for member in queue:
            if member != rank and member not in found:
                waits = self.waiting[member]
                found[member] = waits or has_ended(self.last[member])
                queue += waits.members if waits else ()
        return found

    def _task(self, rank: int, task: Callable[[], Any], results: list[Any]) -> None:
        try:
            self.begin(rank)
            with use(_Rank(self, rank)):
                results[rank] = task()
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread by run()
            self.errors[rank] = error
        finally:
            self.end(rank)


@dataclass(frozen=True, slots=True)
class _Rank:
    """One of them, as kernels see it."""

    _ranks: ThreadRanks
    rank: int

    @property
    def size(self) -> int:
        return self._ranks.count

    def meet(self, meeting: Meeting) -> Brought:
        return self._ranks.meet(self.rank, meeting)


class Aborted(Exception):
    """Another rank failed; its error is the one to show."""
