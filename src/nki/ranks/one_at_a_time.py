"""Ranks that pass one baton, so that a run is the same every time, prints do not mix and a debugger works."""

from __future__ import annotations

from collections.abc import Callable

from nki.core.baton import Baton
from nki.ranks.protocol import Brought, Meeting, check_same_call, same_members
from nki.ranks.threads import Aborted, ThreadRanks


class OneAtATime(ThreadRanks):
    """Exactly one rank runs at any time. It hands the baton on when it waits for others and when it ends."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._baton = Baton(count)
        self._inbox: list[Brought | None] = [None] * count

    def start(self, run: Callable[[int], None]) -> None:
        self._baton.run("rank", run)

    def begin(self, rank: int) -> None:
        self._baton.wait(rank)
        error = self.errors[rank]
        if error is None and any(other is not None for other in self.errors):
            error = Aborted()
        if error is not None:
            self.waiting[rank] = None
            raise error

    def meet(self, rank: int, meeting: Meeting) -> Brought:
        self._check(rank, meeting)
        self.waiting[rank] = self.last[rank] = meeting
        present = [self.waiting[member] for member in meeting.members]
        if all(other is not None and same_members(meeting, other) for other in present):
            values = Brought(other.value for other in present if other is not None)
            for member in meeting.members:
                self.waiting[member], self._inbox[member] = None, values
        else:
            self._hand_on(rank)
            self.begin(rank)
        taken, self._inbox[rank] = self._inbox[rank], None
        assert taken is not None, "the last member leaves it for all"
        return taken

    def end(self, rank: int) -> None:
        self.ended[rank] = True
        self._hand_on(rank)

    def _check(self, rank: int, meeting: Meeting) -> None:
        for member in meeting.members:
            other = self.waiting[member]
            if other is not None and same_members(meeting, other):
                check_same_call(rank, meeting, member, other)

    def _hand_on(self, rank: int) -> None:
        """Give the baton to the next rank that can run; if all that are left wait, they cannot go on."""
        order = [(rank + step) % self.count for step in range(1, self.count + 1)]
        running = [other for other in order if not self.ended[other] and self.waiting[other] is None]
        stuck = [other for other in order if not self.ended[other]]
        if not running and stuck:
            self.give_up(sorted(stuck))
            running = stuck
        if running:
            self._baton.give(running[0])
