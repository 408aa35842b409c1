"""The programs of one core: one after another, or in step where they meet.

A program runs to its end before the next one begins. Where the first one comes to a meeting (`nl.all_reduce`), the
others are started, each in a thread of its own, and run one at a time until they come there as well. The first one
computes what all of them get, and goes on; the others go on when it comes to its next meeting, or to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from nki.beta1.errors import refused

Coordinates = tuple[int, ...]


class _Stopped(BaseException):
    """Ends the thread of a program whose result nobody waits for any more."""


class _Follower:
    """A program in a thread of its own."""

    def __init__(self, program: Coordinates, run: Callable[[Coordinates], Any], programs: Programs) -> None:
        self.program = program
        self.brought: Any = None
        self.error: BaseException | None = None
        self.ended = self.stopped = False
        self.result: Any = None
        self._turn: SimpleQueue[None] = SimpleQueue()
        self._back: SimpleQueue[None] = SimpleQueue()
        context = copy_context()
        self.thread = threading.Thread(target=lambda: context.run(self._run, run, programs), daemon=True)
        self.thread.start()

    def _run(self, run: Callable[[Coordinates], Any], programs: Programs) -> None:
        self._turn.get()
        try:
            if not self.stopped:
                programs.mine.follower = self
                self.result = run(self.program)
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised again where the first program waits
            self.error = error
        self.ended = True
        self._back.put(None)

    def step(self) -> None:
        """Let it run until its next meeting, or its end."""
        self._turn.put(None)
        self._back.get()
        if self.error is not None:
            raise self.error

    def meet(self, brought: Any) -> None:
        """Called in its thread: wait until the first program has been there."""
        self.brought = brought
        self._back.put(None)
        self._turn.get()
        if self.stopped:
            raise _Stopped

    def stop(self) -> None:
        """End the thread."""
        if not self.ended:
            self.stopped = True
            self._turn.put(None)
            self._back.get()


class Programs:
    """All programs of a core.

    Attributes:
        begin: called with the ids of the program that runs from here on.
        mine: of the thread of a follower, that follower.
    """

    def __init__(self, programs: Sequence[Coordinates], begin: Callable[[Coordinates], None]) -> None:
        self.programs = list(programs)
        self.begin = begin
        self.mine = threading.local()
        self._run: Callable[[], Any] = lambda: None
        self._followers: list[_Follower] | None = None
        self._found: list[Any] = []

    def run(self, body: Callable[[], Any]) -> list[Any]:
        """The results of all programs."""
        self._run = body
        try:
            results = [self._one(self.programs[0])]
            if self._followers is None:
                return results + [self._one(program) for program in self.programs[1:]]
            for follower in self._followers:
                self._step(follower)
                if not follower.ended:
                    raise _uneven(follower.program, self.programs[0])
            return results + [follower.result for follower in self._followers]
        finally:
            for follower in self._followers or ():
                follower.stop()

    def meet(self, brought: Any, combine: Callable[[dict[Coordinates, Any]], dict[Coordinates, Any]]) -> Any:
        """Bring something to a meeting of all programs, and get what `combine` makes of it for this one."""
        follower = getattr(self.mine, "follower", None)
        if follower is not None:
            follower.meet(brought)
            return self._found[-1][follower.program]
        first = self.programs[0]
        if self._followers is None:
            self._followers = [_Follower(program, self._one, self) for program in self.programs[1:]]
        for other in self._followers:
            other.brought = None
            self._step(other)
            if other.ended:
                raise _uneven(first, other.program)
        self.begin(first)
        all_brought = {first: brought, **{other.program: other.brought for other in self._followers}}
        self._found = [combine(all_brought)]
        return self._found[-1][first]

    def _one(self, program: Coordinates) -> Any:
        self.begin(program)
        return self._run()

    def _step(self, follower: _Follower) -> None:
        self.begin(follower.program)
        follower.step()


def _uneven(waiting: Coordinates, ended: Coordinates) -> Exception:
    return refused(
        "all_reduce_uneven",
        f"program {waiting} comes to an nl.all_reduce that program {ended} never comes to",
        "let all programs of the grid call it equally often",
    )
