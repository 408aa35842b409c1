"""Ranks that run at the same time, each in its thread, and wait only where they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import SimpleQueue

from nki.core.crew import Crew
from nki.core.errors import DivergenceError
from nki.core.locks import lock
from nki.ranks.protocol import Brought, Meeting, check_same_call, same_members
from nki.ranks.threads import ThreadRanks


class Parallel(ThreadRanks):
    """All ranks run freely between meetings.

    What they find wrong does not depend on who comes first: calls are compared when all members are there, and nobody
    is given up before all ranks have ended or wait, which no order of threads changes.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._lock = lock()
        self._running = count
        self._inbox: list[Brought | None] = [None] * count
        self._turns: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(count)]
        self._crew = Crew(count, lambda: self._go_on(range(count)))

    def start(self, run: Callable[[int], None]) -> None:
        self._crew.run("rank", run)

    def begin(self, rank: int) -> None:
        if self._crew.stopped:
            raise KeyboardInterrupt

    def meet(self, rank: int, meeting: Meeting) -> Brought:
        self.begin(rank)
        with self._lock:
            self.waiting[rank] = self.last[rank] = meeting
            self._running -= 1
            self._complete(meeting)
            self._give_up_if_all_wait()
        self._turns[rank].get()
        self.begin(rank)
        taken, self._inbox[rank] = self._inbox[rank], None
        if taken is None:
            error = self.errors[rank]
            assert error is not None, "who is woken has met the others, or cannot"
            raise error
        return taken

    def end(self, rank: int) -> None:
        with self._lock:
            self.ended[rank] = True
            self._running -= 1
            self._give_up_if_all_wait()

    def _complete(self, meeting: Meeting) -> None:
        """If all members are here, have them go on."""
        present = [self.waiting[member] for member in meeting.members]
        if not all(other is not None and same_members(meeting, other) for other in present):
            return
        if not self._compare(meeting):
            values = Brought(other.value for other in present if other is not None)
            for member in meeting.members:
                self._inbox[member] = values
        self._release(meeting.members)

    def _compare(self, meeting: Meeting) -> bool:
        """Whether members that wait for the same list are at different calls, which is the error of one of them."""
        there = [
            (member, other)
            for member in sorted(meeting.members)
            if (other := self.waiting[member]) is not None and same_members(meeting, other)
        ]
        first, known = there[0]
        for member, other in there[1:]:
            try:
                check_same_call(member, other, first, known)
            except DivergenceError as error:
                self.errors[member] = error
                self.give_up([each for each, _ in there])
                return True
        return False

    def _give_up_if_all_wait(self) -> None:
        """If no rank runs that others could wait for, those that wait wait in vain."""
        stuck = [rank for rank, meeting in enumerate(self.waiting) if meeting is not None]
        if self._running or not stuck:
            return
        if not any(error is not None for error in self.errors):
            any(self._compare(meeting) for rank in stuck if (meeting := self.waiting[rank]) is not None)
        self.give_up(stuck)
        self._release(stuck)

    def _release(self, ranks: Iterable[int]) -> None:
        """Have ranks that wait go on, with what the others brought or with an error."""
        for rank in ranks:
            self.waiting[rank] = None
            self._running += 1
        self._go_on(ranks)

    def _go_on(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._turns[rank].put(None)
