"""Several ranks in one process: threads that pass one baton, so that a run is deterministic and a debugger works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nki.core.baton import Baton
from nki.ranks.current import use
from nki.ranks.protocol import Meeting, check_same_call, deadlock, same_members

T = TypeVar("T")


class ThreadRanks:
    """The meeting point of the ranks of a launch.

    Exactly one rank runs at any time. It hands the baton on when it waits for others and when it ends.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._baton = Baton(count)
        self._ended = [False] * count
        self._waiting: list[Meeting | None] = [None] * count
        self._inbox: list[list[Any] | None] = [None] * count
        self._errors: list[BaseException | None] = [None] * count

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run one task for each rank; the first error that is not another one's consequence is raised.

        Kernels that a task calls are the rank of its thread.
        """
        results: list[Any] = [None] * self.count
        self._baton.run("rank", lambda rank: self._task(rank, tasks[rank], results))
        for rank, error in enumerate(self._errors):
            if error is not None and not isinstance(error, _Aborted):
                error.add_note(f"on rank {rank} of {self.count}")
                raise error
        return results

    def meet(self, rank: int, meeting: Meeting) -> list[Any]:
        """Wait until all members are here; returns what they bring, in the order of the list."""
        self._check(rank, meeting)
        self._waiting[rank] = meeting
        present = [self._waiting[member] for member in meeting.members]
        if all(other is not None and same_members(meeting, other) for other in present):
            values = [other.value for other in present if other is not None]
            for member in meeting.members:
                self._waiting[member], self._inbox[member] = None, values
        else:
            self._hand_on(rank)
            self._wait_for_turn(rank)
        taken, self._inbox[rank] = self._inbox[rank], None
        assert taken is not None, "the last member leaves it for all"
        return taken

    def _check(self, rank: int, meeting: Meeting) -> None:
        for member in meeting.members:
            other = self._waiting[member]
            if other is not None and same_members(meeting, other):
                check_same_call(rank, meeting, member, other)

    def _task(self, rank: int, task: Callable[[], Any], results: list[Any]) -> None:
        try:
            self._wait_for_turn(rank)
            with use(_Rank(self, rank)):
                results[rank] = task()
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread by run()
            self._errors[rank] = error
        finally:
            self._ended[rank] = True
            self._hand_on(rank)

    def _hand_on(self, rank: int) -> None:
        """Give the baton to the next rank that can run; if all that are left wait, they cannot go on."""
        order = [(rank + step) % self.count for step in range(1, self.count + 1)]
        running = [other for other in order if not self._ended[other] and self._waiting[other] is None]
        stuck = [other for other in order if not self._ended[other]]
        if not running and stuck:
            self._release(sorted(stuck))
            running = stuck
        if running:
            self._baton.give(running[0])

    def _release(self, stuck: Sequence[int]) -> None:
        """All that wait get an error: a deadlock, unless somebody else's error is the reason."""
        failed = any(error is not None for error in self._errors)
        for rank in stuck:
            if self._errors[rank] is not None:  # since an earlier time; it has not had the baton yet
                continue
            meeting = self._waiting[rank]
            assert meeting is not None, "who does not wait can run"
            others = {member: self._waiting[member] or "has ended" for member in meeting.members if member != rank}
            self._errors[rank] = _Aborted() if failed else deadlock(rank, meeting, others)
            failed = True

    def _wait_for_turn(self, rank: int) -> None:
        self._baton.wait(rank)
        error = self._errors[rank]
        if error is None and any(other is not None for other in self._errors):
            error = _Aborted()
        if error is not None:
            self._waiting[rank] = None
            raise error


@dataclass(frozen=True, slots=True)
class _Rank:
    """One of them, as kernels see it."""

    _ranks: ThreadRanks
    rank: int

    @property
    def size(self) -> int:
        return self._ranks.count

    def meet(self, meeting: Meeting) -> list[Any]:
        return self._ranks.meet(self.rank, meeting)


class _Aborted(Exception):
    """Another rank failed; its error is the one to show."""
