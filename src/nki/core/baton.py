"""A baton that threads hand on, so that one of them runs at any time: those of cores, and those of ranks."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from nki.core.crew import Crew


class Baton:
    """What lets one of several threads run at any time; the first one has it at the beginning."""

    def __init__(self, count: int) -> None:
        self._turns: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(count)]
        self._turns[0].put(None)
        self._crew = Crew(count, self._give_all)

    def give(self, number: int) -> None:
        """Let a thread run that waits, or is going to."""
        self._turns[number].put(None)

    def wait(self, number: int) -> None:
        """Return when this thread has the baton. Raises KeyboardInterrupt if all are to end."""
        if not self._crew.stopped:
            self._turns[number].get()
        if self._crew.stopped:
            raise KeyboardInterrupt

    def run(self, what: str, run: Callable[[int], None]) -> None:
        """Have the threads run, each with its number; see `Crew.run`."""
        self._crew.run(what, run)

    def _give_all(self) -> None:
        for turn in self._turns:
            turn.put(None)
